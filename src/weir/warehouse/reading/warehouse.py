"""Builds all readers of the warehouse, once per process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weir.model.clock import Clock, SystemClock
from weir.warehouse.reading.audits import PastAuditReader
from weir.warehouse.reading.digests import DigestReader
from weir.warehouse.reading.fairness import FairnessReader
from weir.warehouse.reading.flows import FlowReader
from weir.warehouse.reading.freshness import FreshnessReader, GapReader, Tails, TrustReader
from weir.warehouse.reading.lives import LifeReader
from weir.warehouse.reading.log import LogReader
from weir.warehouse.reading.periods import DEFAULT_RETENTION_MS, Resolution
from weir.warehouse.reading.queues import HistoryReader
from weir.warehouse.reading.rates import RateReader
from weir.warehouse.reading.reader import Reader, ReaderActivity
from weir.warehouse.reading.sparklines import SparklineReader
from weir.warehouse.reading.top import TopReader
from weir.warehouse.reading.windows import WindowReader
from weir.warehouse.reading.workers import WorkerReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Warehouse:
    """The readers of one warehouse."""

    clock: Clock
    shards: int
    retention_ms: Mapping[Resolution, int]
    reader: Reader
    freshness: FreshnessReader
    gaps: GapReader
    history: HistoryReader
    top: TopReader
    sparklines: SparklineReader
    workers: WorkerReader
    windows: WindowReader
    rates: RateReader
    flows: FlowReader
    audits: PastAuditReader
    lives: LifeReader
    log: LogReader
    fairness: FairnessReader

    async def aclose(self) -> None:
        await self.reader.aclose()


def open_warehouse(
    url: str,
    *,
    tails: Tails,
    shards: int,
    clock: Clock | None = None,
    retention_ms: Mapping[Resolution, int] = DEFAULT_RETENTION_MS,
    freshness_max_age_ms: int = 500,
    activity: ReaderActivity | None = None,
) -> Warehouse:
    """A warehouse by URL; nothing is connected before the first question."""
    clock = clock or SystemClock()
    reader = Reader(url, activity=activity)
    freshness = FreshnessReader(reader, tails, clock=clock, max_age_ms=freshness_max_age_ms)
    # Gaps are recorded seldom, so every five seconds is often enough (0041).
    gaps = GapReader(reader, clock=clock, max_age_ms=10 * freshness_max_age_ms)
    trust = TrustReader(freshness, gaps)
    digests = DigestReader(reader, clock=clock)
    windows = WindowReader(reader, digests)
    flows = FlowReader(reader)
    return Warehouse(
        clock=clock,
        shards=shards,
        retention_ms=retention_ms,
        reader=reader,
        freshness=freshness,
        gaps=gaps,
        history=HistoryReader(reader, trust, digests, clock=clock, shards=shards, retention_ms=retention_ms),
        top=TopReader(reader, flows, freshness, digests, clock=clock, shards=shards),
        sparklines=SparklineReader(reader, trust, shards=shards),
        workers=WorkerReader(reader, freshness, trust, clock=clock),
        windows=windows,
        flows=flows,
        audits=PastAuditReader(reader),
        lives=LifeReader(reader),
        log=LogReader(reader, freshness, gaps, clock=clock, shards=shards),
        fairness=FairnessReader(reader),
        rates=RateReader(windows, freshness, shards=shards),
    )
