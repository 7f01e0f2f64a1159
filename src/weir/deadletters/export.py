"""Reads all dead letters in parts from synchronous code: each range of arrivals is a stream of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import psycopg

from weir.control.errors import translating
from weir.deadletters.queries import DEAD_LETTERS

COLUMNS = ("organization", "project", "environment", "queue", "reason", "error", "died_at_ms")
FETCH = 20_000
"""Rows per round trip. Rows have no payload, so this many fit into memory."""
SAMPLED_PAGES = 100
"""Pages to sample per part. They only decide how even the parts are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRange:
    """Letters by order of arrival: from `first` to before `end`."""

    first: int
    end: int


def ranges(url: str, *, parts: int) -> list[ExportRange]:
    """Ranges of about equal size that cover the table, found without reading all of it."""
    with translating(), psycopg.connect(url) as connection:
        pages = connection.execute(DEAD_LETTERS["table_pages"].text).fetchone()
        percent = min(100.0, 100 * SAMPLED_PAGES * parts / max(pages[0] if pages else 0, 1))
        wanted = {"shares": [part / parts for part in range(1, parts)], "percent": percent}
        row = connection.execute(DEAD_LETTERS["arrivals"].text, wanted).fetchone()
    cuts, end = row or (None, 0)
    # A bad estimate makes the parts uneven. Together they are always the whole table.
    edges = sorted({0, *(cut for cut in cuts or () if cut), end})
    return [ExportRange(first=first, end=last) for first, last in pairwise(edges)]


def read_range(url: str, part: ExportRange) -> Iterator[list[tuple[Any, ...]]]:
    """The dead letters of one range in lists of rows with `COLUMNS`; memory stays small."""
    with translating(), psycopg.connect(url) as connection, connection.cursor(name="weir_export") as cursor:
        cursor.itersize = FETCH
        cursor.execute(DEAD_LETTERS["export_range"].text, {"first": part.first, "end": part.end})
        while rows := cursor.fetchmany(FETCH):
            yield rows
