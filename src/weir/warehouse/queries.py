"""Loads the named queries of the warehouse and replaces the marks in their SQL.

`$COUNTERS(sum(#) AS #)` stands for that text once per counter of the catalogue, joined by commas; `#` is the
counter's name. `$LEFT(t)` stands for the number of messages that left for good, over all rows of `t`.
`$WAITS(t)` and `$LAGS(t)` stand for the columns of the waits or lags of all rows of `t`
(`warehouse.percentiles`), `$LOWS_AND_MEANS(t, queue_length, running)` for minimum and mean of these gauges.
Queries about waits are written out in two ways: for tables whose rows may have a digest, and for others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial

from weir.control.sql import NamedQuery, load_queries
from weir.telemetry.events import FINAL_COUNTERS, QUEUE_COUNTERS
from weir.warehouse.percentiles import lags_sql, waits_sql

_AGGREGATE = re.compile(r"(?:sum|max)\([^()]*#[^()]*\)")
_MARK = re.compile(r"\$(?P<name>[A-Z_]+)\(")


@cache
def load_warehouse_queries(package: str, file: str, *, digests: bool = False) -> dict[str, NamedQuery]:
    """Read the named queries of `file` in `package`, each with its marks written out."""
    queries = load_queries(package, file)
    return {
        name: replace(query, text=write_marks(query.text, digests=digests)) for name, query in queries.items()
    }


def write_marks(text: str, *, digests: bool = False) -> str:
    """The text with every mark written out; `digests` if rows may have a digest."""
    writers: Mapping[str, Callable[[str], str]] = {**_WRITERS, "WAITS": partial(waits_sql, digests=digests)}
    while (mark := _MARK.search(text)) is not None:
        end = _closing(text, mark.end())
        written = writers[mark["name"]](text[mark.end() : end])
        text = text[: mark.start()] + written + text[end + 1 :]
    return text


def _counters(each: str) -> str:
    """The text once per counter. Rows of earlier releases lack the later counters, which count as 0."""
    each = _AGGREGATE.sub(r"coalesce(\g<0>, 0)", each)
    return ", ".join(each.replace("#", one) for one in QUEUE_COUNTERS)


def _left(rows: str) -> str:
    return " + ".join(f"coalesce(sum({rows}.{name}), 0)" for name in FINAL_COUNTERS)


def _lows_and_means(arguments: str) -> str:
    """Minimum and mean of each gauge; null where no row has them, as in rows of earlier releases."""
    rows, *gauges = (word.strip() for word in arguments.split(","))
    return ", ".join(
        f"min({rows}.min_{gauge}) AS min_{gauge}, "
        f"sum({rows}.sum_{gauge}) / sum({rows}.gauge_count) AS mean_{gauge}"
        for gauge in gauges
    )


_WRITERS: Mapping[str, Callable[[str], str]] = {
    "COUNTERS": _counters,
    "LAGS": lags_sql,
    "LEFT": _left,
    "LOWS_AND_MEANS": _lows_and_means,
}


def _closing(text: str, start: int) -> int:
    """Where the bracket that was opened before `start` is closed."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise ValueError("a mark is never closed")
