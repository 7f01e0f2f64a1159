"""Reads the depth of every queue of an environment as a sparkline of a few wide slots."""

from __future__ import annotations

from weir.model.names import EnvironmentRef
from weir.warehouse.reading.periods import Window
from weir.warehouse.reading.questions import ask_tenant
from weir.warehouse.reading.queues import table_of
from weir.warehouse.reading.reader import Reader
from weir.warehouse.tables import QUEUES

SLOTS = 30
MAX_QUEUES = 10_000


class SparklineReader:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def of(self, environment: EnvironmentRef, window: Window) -> dict[str, list[int | None]]:
        """The depths in `SLOTS` slots, by queue; a slot without data repeats the one before."""
        start_s, end_s = window.start_ms // 1_000, window.end_ms // 1_000
        rows = await self._reader.ask(
            ask_tenant(
                "sparklines",
                environment,
                table=table_of(QUEUES, window.resolution),
                start_s=start_s,
                end_s=end_s,
                slot_s=max(1, (end_s - start_s) // SLOTS),
                limit=MAX_QUEUES,
            )
        )
        return {row["queue"]: filled(row["slots"], row["depths"]) for row in rows}


def filled(slots: list[int], depths: list[int]) -> list[int | None]:
    """One depth per slot; a slot without its own repeats the one before."""
    known = dict(zip(slots, depths, strict=True))
    line: list[int | None] = []
    for slot in range(SLOTS):
        line.append(known.get(slot, line[-1] if line else None))
    return line
