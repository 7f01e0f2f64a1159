"""Reads the depth of every queue of an environment as a sparkline of a few wide slots."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of
from weir.warehouse.reading.freshness import LandedGap, TrustReader
from weir.warehouse.reading.periods import Window
from weir.warehouse.reading.questions import ask_tenant
from weir.warehouse.reading.queues import table_of
from weir.warehouse.reading.reader import Reader
from weir.warehouse.tables import QUEUES, GapKind

SPARKLINE_SLOTS = 30
MAX_SPARKLINES = 10_000


class SparklineReader:
    def __init__(self, reader: Reader, trust: TrustReader, *, shards: int) -> None:
        self._reader = reader
        self._trust = trust
        self._shards = shards

    async def of(self, environment: EnvironmentRef, window: Window) -> dict[str, list[int | None]]:
        """The depths in `SPARKLINE_SLOTS` slots, by queue; see `filled`."""
        start_s, end_s = window.start_ms // 1_000, window.end_ms // 1_000
        slot_s = max(1, (end_s - start_s) // SPARKLINE_SLOTS)
        rows, trust = await asyncio.gather(
            self._reader.ask(
                ask_tenant(
                    "sparklines",
                    environment,
                    table=table_of(QUEUES, window.resolution),
                    start_s=start_s,
                    end_s=end_s,
                    slot_s=slot_s,
                    limit=MAX_SPARKLINES,
                )
            ),
            self._trust.of("queue", shard_of(environment, shards=self._shards)),
        )
        gaps = trust.within(start_ms=window.start_ms, end_ms=window.end_ms)
        lost = lost_slots(gaps, start_ms=window.start_ms, slot_ms=slot_s * 1_000)
        return {row["queue"]: filled(row["slots"], row["depths"], lost=lost) for row in rows}


def lost_slots(gaps: Sequence[LandedGap], *, start_ms: int, slot_ms: int) -> Mapping[int, bool]:
    """The slots that gaps touch; True if events were dropped, so that the depth from before is forgotten."""
    lost: dict[int, bool] = {}
    for gap in gaps:
        first = max((gap.span.start_ms - start_ms) // slot_ms, 0)
        last = min((gap.span.end_ms - 1 - start_ms) // slot_ms, SPARKLINE_SLOTS - 1)
        for slot in range(first, last + 1):
            lost[slot] = lost.get(slot, False) or gap.kind is not GapKind.SWITCHED_OFF
    return lost


def filled(
    slots: list[int], depths: list[int], *, lost: Mapping[int, bool] = MappingProxyType({})
) -> list[int | None]:
    """One depth per slot; a slot without a depth repeats the one before, unless a gap touches it.

    After a gap in which events were dropped, nothing is repeated. After a gap in which metrics were off, a
    queue that changed emits an event soon, so a silent queue still has its old depth.
    """
    known = dict(zip(slots, depths, strict=True))
    line: list[int | None] = []
    before: int | None = None
    for slot in range(SPARKLINE_SLOTS):
        if lost.get(slot):
            before = None
        before = known.get(slot, before)
        line.append(known.get(slot) if slot in lost else before)
    return line
