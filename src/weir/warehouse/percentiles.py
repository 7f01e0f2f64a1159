"""Spells the SQL that reads percentiles of waits and lags; every question that has percentiles uses it.

A tier keeps the waits of a bucket as a sketch (DDSketch): counts of waits by size, in steps of 2 %. Merging
adds counts, so the answer is the same in every tier, in any order and after a rebuild. It is within 1 % of
the wait at the rank that numpy calls `inverted_cdf`: the smallest wait that the share `level` of all waits
does not exceed. Under 49 ms it is that wait exactly. Lags of messages are kept and read in the same way.

The engine takes the wait with the index `level * (count - 1)`, rounded down, which is one lower. With the
greatest wait added once more the count is one greater, and a level lower by `_STEP_BACK` also keeps a product
that is whole from rounding up: the index is then that of `inverted_cdf` for up to 10^10 waits.

Waits in rows of earlier releases have a T-Digest instead, without a bound. Where rows of both kinds meet in
one answer, the greater of the two percentiles is given: the percentile of all of them is never above it.
"""

from __future__ import annotations

from enum import StrEnum

LEVELS = (0.5, 0.95, 0.99)
RELATIVE_ERROR = 0.01
_STEP_BACK = 1e-12
# A wait of at most 49 ms is less than half a millisecond from its percentile, so rounding restores it. A wait
# of 50 ms or more never has a percentile under 49.5 ms.
_WHOLE_BELOW_MS = 49.4

_LEVELS = ", ".join(map(str, LEVELS))
SKETCH_PARAMETERS = f"{RELATIVE_ERROR}, {_LEVELS}"
"""The parameters of `quantilesDD` in the type of every sketch."""
_LOWER_LEVELS = ", ".join(f"{level - _STEP_BACK:.12f}" for level in LEVELS)
_DIGESTS, _SKETCHES = 1, 2


class Sketch(StrEnum):
    """What the percentiles of an answer were read from."""

    DDSKETCH = "ddsketch"
    """Within 1 % of the wait at that rank."""
    TDIGEST = "tdigest"
    """Rows of an earlier release: near that wait, without a bound."""
    BOTH = "both"
    """Rows of both kinds: the greater of the two percentiles; that of all waits is not above it."""


def waits_sql(rows: str) -> str:
    """The columns of the waits of `rows` of a tier: count, sum, maximum, percentiles and their sketches."""
    greatest, sketch = f"max({rows}.wait_max_ms)", _merged(f"{rows}.wait_sketch")
    digests = f"quantilesTDigestMerge({_LEVELS})({rows}.wait_digest)"
    return f"""sum({rows}.wait_count) AS wait_count,
    sum({rows}.wait_sum_ms) AS wait_sum_ms,
    {greatest} AS wait_max_ms,
    {_DIGESTS} * isFinite({digests}[1])
        + {_SKETCHES} * isFinite(finalizeAggregation({sketch})[1]) AS wait_sketches,
    arrayMap(
        (of_sketch, of_digest, kinds) -> multiIf(
            kinds = {_DIGESTS}, of_digest, kinds = {_SKETCHES}, of_sketch, greatest(of_sketch, of_digest)
        ),
        {_percentiles(sketch, greatest)}, {digests}, {_for_each_level("wait_sketches")}
    ) AS wait_percentiles"""


def lags_sql(rows: str) -> str:
    """The columns of the lags of `rows` of a tier: count, sum, maximum and percentiles."""
    greatest, sketch = f"max({rows}.lag_ms_max)", _merged(f"{rows}.lag_ms_sketch")
    return f"""sum({rows}.lag_ms_count) AS lag_count,
    sum({rows}.lag_ms_sum) AS lag_sum_ms,
    {greatest} AS lag_max_ms,
    {_percentiles(sketch, greatest)} AS lag_percentiles"""


def _merged(column: str) -> str:
    return f"quantilesDDMergeState({SKETCH_PARAMETERS})({column})"


def _percentiles(sketch: str, greatest: str) -> str:
    """The percentiles of a sketch whose greatest value is known: an array with one for each level."""
    one_more = f"arrayReduce('quantilesDDState({RELATIVE_ERROR}, {_LOWER_LEVELS})', [{greatest}])"
    return f"""arrayMap(
            (x, most) -> if(x < {_WHOLE_BELOW_MS}, round(x), least(x, most)),
            finalizeAggregation({one_more} + {sketch}), {_for_each_level(greatest)}
        )"""


def _for_each_level(value: str) -> str:
    return f"arrayWithConstant({len(LEVELS)}, {value})"


def sketch_of(kinds: int) -> Sketch | None:
    """The sketch that `wait_sketches` of an answer stands for; None without waits."""
    return _BY_KINDS.get(kinds)


_BY_KINDS = {_DIGESTS: Sketch.TDIGEST, _SKETCHES: Sketch.DDSKETCH, _DIGESTS | _SKETCHES: Sketch.BOTH}
