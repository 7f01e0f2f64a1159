"""Reads what single queues did lately, in the three parts that a verdict compares: before, recent, now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from weir.model.names import EnvironmentRef
from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.reading.pace import PACE_SPAN_MS, PaceBuckets
from weir.warehouse.reading.periods import Resolution
from weir.warehouse.reading.questions import ask_tenant
from weir.warehouse.reading.queues import table_of
from weir.warehouse.reading.reader import Reader
from weir.warehouse.tables import BUCKET_MS, LEDGER, QUEUES

# Now lasts 15 to 20 s, because it begins on a bucket. A mean over minutes would hide dead workers that long
# (0061).
NOW_SPAN_MS = 15_000
BEFORE_FACTOR = 6
"""`BEFORE` is this many times as long as the recent past, and ends where the recent past begins."""


class FlowPart(IntEnum):
    BEFORE = 0
    RECENT = 1
    NOW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """The starts of the parts, all on buckets, and the end of the last part."""

    start_ms: int
    recent_ms: int
    now_ms: int
    end_ms: int

    @property
    def just_now_ms(self) -> int:
        """The start of now for figures that do not come from telemetry, such as attempts in PostgreSQL."""
        return _bucket(self.end_ms - NOW_SPAN_MS)


def cuts_for(*, end_ms: int, complete_ms: int, recent_ms: int) -> Cuts:
    """The parts that end at `end_ms`. Now begins early enough to hold everything that has not landed yet."""
    now_ms = _bucket(min(end_ms - NOW_SPAN_MS, complete_ms))
    split_ms = min(_bucket(end_ms - recent_ms), now_ms)
    return Cuts(
        start_ms=max(split_ms - BEFORE_FACTOR * recent_ms, 0),
        recent_ms=split_ms,
        now_ms=now_ms,
        end_ms=end_ms,
    )


def _bucket(time_ms: int) -> int:
    return max(time_ms - time_ms % BUCKET_MS, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSums:
    """The counts and gauges of a queue in one part."""

    counts: Mapping[str, int]
    running_max: int
    running_sum: int
    """The sum of the last `running` gauge of each bucket; divided by `buckets` it is a mean."""
    buckets: int
    first_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFlows:
    """The landed figures of one queue."""

    parts: Mapping[FlowPart, PartSums] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    """Its odometers in the newest landed event; empty if none landed."""
    paces: PaceBuckets = field(
        default_factory=lambda: PaceBuckets(starts_ms=(), arrived=(), left=(), taken=())
    )


class FlowReader:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def of(
        self, environment: EnvironmentRef, queues: Sequence[str], cuts: Cuts
    ) -> dict[str, QueueFlows]:
        """The flows of queues of one environment, by name; queues without a landed event are left out."""
        rows = await self._reader.ask(
            ask_tenant(
                "queue_flows",
                environment,
                split_s=cuts.recent_ms // 1_000,
                now_s=cuts.now_ms // 1_000,
                **_span(queues, cuts.start_ms, cuts.end_ms),
            )
        )
        paces = await self.paces(environment, queues, end_ms=cuts.end_ms)
        by_queue: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            by_queue.setdefault(row["queue"], []).append(row)
        return {
            name: QueueFlows(
                parts={FlowPart(row["part"]): _sums(row) for row in found},
                totals=_totals(found),
                paces=paces.get(name, QueueFlows().paces),
            )
            for name, found in by_queue.items()
        }

    async def odometers(
        self, environment: EnvironmentRef, queues: Sequence[str]
    ) -> dict[str, Mapping[str, int]]:
        """The newest landed odometers of queues of one environment, however old, by name.

        They come from the ledger: it has one row per queue, where the hour tier has one per hour of 400 days.
        """
        question = ask_tenant("queue_odometers", environment, table=LEDGER, queues=list(queues))
        return {row["queue"]: _totals([row]) for row in await self._reader.ask(question)}

    async def paces(
        self, environment: EnvironmentRef, queues: Sequence[str], *, end_ms: int
    ) -> dict[str, PaceBuckets]:
        """The newest buckets of queues of one environment, by name."""
        span = _span(queues, _bucket(end_ms - PACE_SPAN_MS), end_ms)
        return {
            row["queue"]: paces_of(row)
            for row in await self._reader.ask(ask_tenant("queue_paces", environment, **span))
        }


def paces_of(row: Mapping[str, Any]) -> PaceBuckets:
    names = ("starts_ms", "arrived", "departed", "taken")
    starts_ms, arrived, left, taken = ([int(value) for value in row[name]] for name in names)
    return PaceBuckets(starts_ms=starts_ms, arrived=arrived, left=left, taken=taken)


def _span(queues: Sequence[str], start_ms: int, end_ms: int) -> dict[str, Any]:
    return {
        "table": table_of(QUEUES, Resolution.FIVE_SECONDS),
        "queues": list(queues),
        "start_s": start_ms // 1_000,
        "end_s": end_ms // 1_000 + 1,
    }


def _totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {one: max(int(row[f"{one}_total"]) for row in rows) for one in QUEUE_COUNTERS}


def _sums(row: Mapping[str, Any]) -> PartSums:
    return PartSums(
        counts={name: int(row[name]) for name in QUEUE_COUNTERS},
        running_max=row["running_max"],
        running_sum=row["running_sum"],
        buckets=row["buckets"],
        first_ms=row["first_ms"],
    )
