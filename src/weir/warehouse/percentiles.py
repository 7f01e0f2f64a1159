"""Spells the SQL that reads percentiles of waits and lags; every question that has percentiles uses it.

A tier keeps the waits of a bucket as a sketch (DDSketch): counts of waits by size, in steps of 2 %. Merging
adds counts, so the answer is the same in every tier, in any order and after a rebuild. It is within 1 % of
the wait at the rank that numpy calls `inverted_cdf` (the smallest wait that the share `level` of all waits
does not exceed), or of the wait one rank below it. Under 49 ms it is one of these waits exactly. Lags of
messages are kept and read in the same way.

The engine takes the wait with the index `level * (count - 1)`, rounded down, which is that rank or the one
below. With few waits that would be the second longest, so the answer is then the greatest wait, which a tier
keeps anyway.

Waits in rows of earlier releases have a T-Digest instead, without a bound. Where rows of both kinds meet in
one answer, the greater of the two percentiles is given: the percentile of all waits is not above it.
Merging digests takes time even if all are empty, so a query merges them only if its table has one
(`warehouse.reading.digests`).
"""

from __future__ import annotations

from enum import StrEnum

LEVELS = (0.5, 0.95, 0.99)
RELATIVE_ERROR = 0.01
# A wait of at most 49 ms is less than half a millisecond from its percentile, so rounding restores it. A wait
# of 50 ms or more never has a percentile under 49.5 ms.
_WHOLE_BELOW_MS = 49.4

_LEVELS = ", ".join(map(str, LEVELS))
SKETCH_PARAMETERS = f"{RELATIVE_ERROR}, {_LEVELS}"
"""The parameters of `quantilesDD` in the type of every sketch."""
_FEW = [round(1 / (1 - level)) for level in LEVELS]
"""With fewer waits than this, the rank of a level is that of the greatest wait."""
_DIGESTS, _SKETCHES = 1, 2


class Sketch(StrEnum):
    """What the percentiles of an answer were read from."""

    DDSKETCH = "ddsketch"
    """Within 1 % of the wait at that rank."""
    TDIGEST = "tdigest"
    """Rows of an earlier release: near that wait, without a bound."""
    BOTH = "both"
    """Rows of both kinds: the greater of the two percentiles; that of all waits is not above it."""


def waits_sql(rows: str, *, digests: bool = False) -> str:
    """The columns of the waits of `rows` of a tier: count, sum, maximum and percentiles.

    With `digests` the rows may have a T-Digest, and the column `wait_sketches` tells what an answer was read
    from (`sketch_of`).
    """
    count, greatest, sketch = (
        f"sum({rows}.wait_count)",
        f"max({rows}.wait_max_ms)",
        _merged(f"{rows}.wait_sketch"),
    )
    percentiles = _percentiles(sketch, count=count, greatest=greatest)
    return f"""{count} AS wait_count,
    sum({rows}.wait_sum_ms) AS wait_sum_ms,
    {greatest} AS wait_max_ms,
    {_with_digests(rows, sketch, percentiles) if digests else f"{percentiles} AS wait_percentiles"}"""


def lags_sql(rows: str) -> str:
    """The columns of the lags of `rows` of a tier: count, sum, maximum and percentiles."""
    count, greatest = f"sum({rows}.lag_ms_count)", f"max({rows}.lag_ms_max)"
    percentiles = _percentiles(_merged(f"{rows}.lag_ms_sketch"), count=count, greatest=greatest)
    return f"""{count} AS lag_count,
    sum({rows}.lag_ms_sum) AS lag_sum_ms,
    {greatest} AS lag_max_ms,
    {percentiles} AS lag_percentiles"""


def _merged(column: str) -> str:
    return f"quantilesDDMerge({SKETCH_PARAMETERS})({column})"


def _percentiles(sketch: str, *, count: str, greatest: str) -> str:
    """The percentiles of a merged sketch: an array with one for each level."""
    return f"""arrayMap(
        (x, few) -> multiIf(
            {count} < few, {greatest}, x < {_WHOLE_BELOW_MS}, round(x), least(x, {greatest})
        ),
        {sketch}, {_FEW}
    )"""


def _with_digests(rows: str, sketch: str, percentiles: str) -> str:
    """What an answer was read from, and the percentiles of the sketch, of the digest or of both."""
    digest = f"quantilesTDigestMerge({_LEVELS})({rows}.wait_digest)"
    return f"""{_DIGESTS} * isFinite({digest}[1]) + {_SKETCHES} * isFinite({sketch}[1]) AS wait_sketches,
    arrayMap(
        (of_sketch, of_digest) -> multiIf(
            wait_sketches = {_DIGESTS}, of_digest,
            wait_sketches = {_SKETCHES}, of_sketch,
            greatest(of_sketch, of_digest)
        ),
        {percentiles}, {digest}
    ) AS wait_percentiles"""


def sketch_of(kinds: int) -> Sketch | None:
    """The sketch that `wait_sketches` of an answer stands for; None without waits."""
    return _BY_KINDS.get(kinds)


def kinds_of(wait_count: int) -> int:
    """The `wait_sketches` of an answer whose table has no digests."""
    return _SKETCHES if wait_count else 0


_BY_KINDS = {_DIGESTS: Sketch.TDIGEST, _SKETCHES: Sketch.DDSKETCH, _DIGESTS | _SKETCHES: Sketch.BOTH}
