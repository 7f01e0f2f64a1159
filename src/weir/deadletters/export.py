"""Reading the whole table in parts, from synchronous code: ranges of arrival, each a stream of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from weir.control.errors import translating
from weir.control.sql import load_queries

SQL = load_queries("weir.deadletters", "export.sql")
COLUMNS = ("organization", "project", "environment", "queue", "reason", "error", "died_at_ms")
FETCH = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Letters by order of arrival: from `first` to before `end`."""

    first: int
    end: int


def ranges(url: str, *, parts: int) -> list[Range]:
    """The table cut into ranges of about the same length."""
    with translating(), psycopg.connect(url) as connection:
        row = connection.execute(SQL["arrivals"].text).fetchone()
    first, end = (0, 0) if row is None or row[0] is None else (row[0], row[1] + 1)
    step = max(1, -(-(end - first) // parts))
    return [Range(first=at, end=min(at + step, end)) for at in range(first, end, step)]


def read_range(url: str, part: Range) -> Iterator[list[tuple[Any, ...]]]:
    """The dead letters of one range in lists of rows with `COLUMNS`; memory stays small."""
    with translating(), psycopg.connect(url) as connection, connection.cursor(name="weir_export") as cursor:
        cursor.itersize = FETCH
        cursor.execute(SQL["export_range"].text, {"first": part.first, "end": part.end})
        while rows := cursor.fetchmany(FETCH):
            yield rows
