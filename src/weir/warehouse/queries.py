"""Loads the named queries of the warehouse and writes out the queue's counters, which SQL files spell once.

`$COUNTERS(sum(#) AS #)` stands for that text once per counter of the catalogue, joined by commas; `#` is the
counter's name.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from weir.control.sql import NamedQuery, load_queries
from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.lag_percentiles import lags_sql

_MARK = re.compile(r"\$COUNTERS\(")
_LAGS = re.compile(r"\$LAGS\((\w+)\)")


@cache
def load_warehouse_queries(package: str, file: str) -> dict[str, NamedQuery]:
    """Read the named queries of `file` in `package`, each with its counters written out."""
    queries = load_queries(package, file)
    return {
        name: replace(query, text=write_counters(write_lags(query.text))) for name, query in queries.items()
    }


def write_lags(text: str) -> str:
    """The text with every `$LAGS(t)` written out: the lags of all rows of `t`."""
    return _LAGS.sub(lambda mark: lags_sql(mark[1]), text)


def write_counters(text: str) -> str:
    """The text with every `$COUNTERS(…)` written out."""
    while (mark := _MARK.search(text)) is not None:
        end = _closing(text, mark.end())
        each = text[mark.end() : end]
        text = (
            text[: mark.start()]
            + ", ".join(each.replace("#", one) for one in QUEUE_COUNTERS)
            + text[end + 1 :]
        )
    return text


def _closing(text: str, start: int) -> int:
    """Where the bracket that was opened before `start` is closed."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise ValueError("a `$COUNTERS(` is never closed")
