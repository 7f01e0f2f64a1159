"""Tells which tiers still have rows of an earlier release, whose waits are a digest and not a sketch."""

from __future__ import annotations

from weir.model.clock import Clock
from weir.model.durations import HOUR_MS
from weir.warehouse.reading.questions import ask_operator
from weir.warehouse.reading.reader import Reader

# Digests expire with their rows, so it is worth asking again.
_ASK_AGAIN_MS = HOUR_MS


class DigestReader:
    """Asks every table once, and a table with a digest again every hour.

    No release since the migration to sketches writes a digest. A table without one stays so.
    """

    def __init__(self, reader: Reader, *, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._without: set[str] = set()
        self._found_ms: dict[str, int] = {}

    async def in_table(self, table: str) -> bool:
        """Whether any row of a tier has a digest."""
        if table in self._without:
            return False
        if table in self._found_ms and self._clock.now_ms() < self._found_ms[table] + _ASK_AGAIN_MS:
            return True
        if await self._reader.ask(ask_operator("has_digest", table=table, table_name=table)):
            self._found_ms[table] = self._clock.now_ms()
            return True
        self._without.add(table)
        return False
