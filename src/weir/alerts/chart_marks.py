"""The marks on every chart of an environment: alerts, annotations, applied specs, pauses and gaps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from weir.control.database import Database
from weir.control.scopes import scope_names
from weir.control.sql import load_queries
from weir.errors import Unavailable
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of
from weir.warehouse.reading.periods import Window
from weir.warehouse.reading.warehouse import Warehouse

SQL = load_queries("weir.alerts", "chart_marks.sql")
# More marks would cover a chart, so only the newest are shown.
MAX_MARKS = 200


class MarkKind(StrEnum):
    ALERT = "alert"
    ANNOTATION = "annotation"
    SPEC = "spec"
    PAUSE = "pause"
    GAP = "gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartMark:
    """One thing that happened, at a moment or over a span."""

    kind: MarkKind
    at_ms: int
    until_ms: int | None
    """None: it is a moment, or an alert or a pause that has not ended."""
    text: str
    queue: str | None
    """None: it concerns the whole environment."""


async def read_marks(
    database: Database,
    warehouse: Warehouse,
    environment: EnvironmentRef,
    window: Window,
    *,
    queue: str | None = None,
) -> list[ChartMark]:
    """The newest marks of a window, newest first; with a queue, the marks of other queues are left out."""
    rows = await database.fetch(
        SQL["marks"],
        start_ms=window.start_ms,
        end_ms=window.end_ms,
        queue=queue,
        limit=MAX_MARKS,
        **scope_names(environment),
    )
    marks = [ChartMark(**{**row, "kind": MarkKind(row["kind"])}) for row in rows]
    marks += await _read_gaps(warehouse, environment, window)
    return sorted(marks, key=lambda mark: mark.at_ms, reverse=True)[:MAX_MARKS]


async def _read_gaps(warehouse: Warehouse, environment: EnvironmentRef, window: Window) -> list[ChartMark]:
    """The gaps in the events of queues; none while ClickHouse is away, since there are no charts either."""
    try:
        gaps = await warehouse.gaps.of("queue", shard_of(environment, shards=warehouse.shards))
    except Unavailable:
        return []
    return [
        ChartMark(
            kind=MarkKind.GAP, at_ms=gap.span.start_ms, until_ms=gap.span.end_ms, text=gap.reason, queue=None
        )
        for gap in gaps
        if gap.span.end_ms >= window.start_ms and gap.span.start_ms < window.end_ms
    ]
