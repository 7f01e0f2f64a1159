"""Reading the whole table in parts, from synchronous code: ranges of arrival, each a stream of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import psycopg

from weir.control.errors import translating
from weir.control.sql import load_queries

SQL = load_queries("weir.deadletters", "export.sql")
COLUMNS = ("organization", "project", "environment", "queue", "reason", "error", "died_at_ms")
FETCH = 20_000
SAMPLED_PAGES = 100
"""Pages to look at for each part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRange:
    """Letters by order of arrival: from `first` to before `end`."""

    first: int
    end: int


def ranges(url: str, *, parts: int) -> list[ExportRange]:
    """The table cut into ranges that hold about as much each, without reading all of it."""
    with translating(), psycopg.connect(url) as connection:
        pages = connection.execute(SQL["table_pages"].text).fetchone()
        percent = min(100.0, 100 * SAMPLED_PAGES * parts / max(pages[0] if pages else 0, 1))
        wanted = {"shares": [part / parts for part in range(1, parts)], "percent": percent}
        row = connection.execute(SQL["arrivals"].text, wanted).fetchone()
    cuts, end = row or (None, 0)
    # The guess only decides how even the parts are: together they are the whole order, whatever it says.
    edges = sorted({0, *(cut for cut in cuts or () if cut), end})
    return [ExportRange(first=first, end=last) for first, last in pairwise(edges)]


def read_range(url: str, part: ExportRange) -> Iterator[list[tuple[Any, ...]]]:
    """The dead letters of one range in lists of rows with `COLUMNS`; memory stays small."""
    with translating(), psycopg.connect(url) as connection, connection.cursor(name="weir_export") as cursor:
        cursor.itersize = FETCH
        cursor.execute(SQL["export_range"].text, {"first": part.first, "end": part.end})
        while rows := cursor.fetchmany(FETCH):
            yield rows
