"""Days in seconds: a warehouse that follows a story, a clock that is moved, and real rows in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weir.alerts.alert_records import AlertRecords
from weir.alerts.evaluator import Evaluator
from weir.alerts.lease import EvaluatorLease
from weir.control.database import Database
from weir.errors import WarehouseUnavailable
from weir.model.names import EnvironmentRef, QueueRef
from weir.testing.clocks import ManualClock
from weir.testing.memory import MemoryBroker
from weir.warehouse.reading.audits import CompleteAudit
from weir.warehouse.reading.flows import FlowReader
from weir.warehouse.reading.freshness import Freshness, LandedGap
from weir.warehouse.reading.pace import Pace
from weir.warehouse.reading.periods import Window
from weir.warehouse.reading.queues import History
from weir.warehouse.reading.series import PointKind, Series, TimeSpan
from weir.warehouse.reading.windows import Frame, Levels, Percentiles, Sums
from weir.warehouse.tables import GapKind

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
T0 = 1_790_000_000_000 // HOUR * HOUR
STEP = 5 * SECOND


@dataclass(kw_only=True)
class Story:
    """What queues do: depth, failures and the like as functions of the time since T0."""

    depth: Mapping[str, Callable[[int], float]]
    error_rate: Mapping[str, Callable[[int], float]] = field(default_factory=dict)
    oldest_age_ms: Mapping[str, Callable[[int], int]] = field(default_factory=dict)
    outages: Sequence[tuple[int, int]] = ()
    """Spans in which the pipeline lands nothing; what happened lands when they end."""
    away: Sequence[tuple[int, int]] = ()
    """Spans in which the warehouse does not answer."""
    losses: Sequence[tuple[int, int]] = ()
    """Spans whose events are lost for good."""

    drift: Mapping[str, Callable[[int], int]] = field(default_factory=dict)
    audits_until: int = 10 * HOUR
    """Every ten minutes there is an audit, up to this time."""

    def landed_until(self, now: int) -> int:
        return next((start for start, end in self.outages if start <= now < end), now)


class StoryWindows:
    """The windows that a warehouse would show, had it followed the story."""

    def __init__(self, story: Story, environment: EnvironmentRef, clock: ManualClock) -> None:
        self._story, self._environment, self._clock = story, environment, clock

    def _times(self, frame: Frame) -> list[int]:
        until = self._story.landed_until(self._clock.now_ms() - T0)
        times = range(frame.start_ms - T0, min(frame.end_ms - T0, until + 1), STEP)
        lost = self._story.losses
        return [at for at in times if not any(start <= at < end for start, end in lost)]

    async def levels(
        self, _: Iterable[EnvironmentRef], frames: Iterable[Frame]
    ) -> dict[Frame, dict[QueueRef, dict[str, Levels]]]:
        return {frame: self._levels(frame) for frame in frames}

    async def sums(
        self, _: Iterable[EnvironmentRef], frames: Iterable[Frame]
    ) -> dict[Frame, dict[QueueRef, Sums]]:
        return {frame: self._sums(frame) for frame in frames}

    async def percentiles(
        self, _: Iterable[EnvironmentRef], frames: Iterable[Frame]
    ) -> dict[Frame, dict[QueueRef, Percentiles]]:
        return {frame: {} for frame in frames}

    def _levels(self, frame: Frame) -> dict[QueueRef, dict[str, Levels]]:
        times = self._times(frame)
        found = {}
        for name, depth in self._story.depth.items():
            values = [depth(at) for at in times]
            if values:
                levels = Levels(low=min(values), high=max(values), now=values[-1])
                found[self._environment.queue(name)] = {"backlog": levels, "oldest_age": levels}
        return found

    def _sums(self, frame: Frame) -> dict[QueueRef, Sums]:
        times = self._times(frame)
        found = {}
        for name, rate in self._story.error_rate.items():
            failed = sum(round(100 * rate(at)) for at in times)
            counts = dict.fromkeys(("enqueued", "dequeued", "dead", "expired", "lapsed", "refused"), 0)
            counts |= {"acked": 100 * len(times) - failed, "nacked": failed}
            found[self._environment.queue(name)] = Sums(
                counts=counts, wait_count=0, wait_sum_ms=0, backlog=1, oldest_age_ms=0, running=0
            )
        return found

    async def paces(self, *_: Any, **__: Any) -> dict[QueueRef, Pace]:
        return {}

    async def worker_lag(self, _: Frame) -> Levels | None:
        return None


class StoryHistory:
    """The series of a queue's oldest age, had the warehouse followed the story."""

    def __init__(self, story: Story, clock: ManualClock) -> None:
        self._story, self._clock = story, clock

    async def of_queue(self, queue: QueueRef, window: Window) -> History:
        times = range(window.start_ms, window.end_ms, window.step_ms)
        age = self._story.oldest_age_ms.get(queue.queue)
        ages = [None if age is None or time_ms < T0 else age(time_ms - T0) for time_ms in times]
        series = Series(
            times_ms=times, kinds=[PointKind.MEASURED] * len(times), columns={"oldest_age_ms": ages}
        )
        return History(
            window=window, series=series, complete_until_ms=self._clock.now_ms(), gaps=(), heard=True
        )


class StoryAudits:
    """The newest complete audit, had the warehouse followed the story."""

    def __init__(self, story: Story, environment: EnvironmentRef, clock: ManualClock) -> None:
        self._story, self._environment, self._clock = story, environment, clock

    @property
    def _at(self) -> int:
        return min(self._clock.now_ms() - T0, self._story.audits_until) // (10 * MINUTE) * 10 * MINUTE

    async def newest_complete(self) -> CompleteAudit | None:
        return CompleteAudit(number=1, started_ms=T0 + self._at, drift=0) if self._at else None

    async def drift_of_environments(self, _: Sequence[EnvironmentRef]) -> dict[QueueRef, int]:
        found = {self._environment.queue(name): drift(self._at) for name, drift in self._story.drift.items()}
        return {queue: drift for queue, drift in found.items() if drift}


class StoryWarehouse:
    """As much of a warehouse as an evaluation asks."""

    shards = 1

    def __init__(self, story: Story, environment: EnvironmentRef, clock: ManualClock) -> None:
        self._story, self._clock = story, clock
        self.windows = StoryWindows(story, environment, clock)
        self.history = StoryHistory(story, clock)
        self.audits = StoryAudits(story, environment, clock)
        self.freshness = self.gaps = self.reader = self
        self.flows = FlowReader(self)

    async def of(self, _: str) -> Freshness:
        now_ms = self._clock.now_ms()
        if any(start <= now_ms - T0 < end for start, end in self._story.away):
            raise WarehouseUnavailable("away")
        landed_ms = T0 + self._story.landed_until(now_ms - T0)
        return Freshness(now_ms=now_ms, behind={} if landed_ms == now_ms else {0: landed_ms})

    async def all_gaps(self) -> list[LandedGap]:
        return [
            LandedGap(
                metric="queue",
                shard=0,
                span=TimeSpan(start_ms=T0 + start, end_ms=T0 + end),
                kind=GapKind.DROPPED,
            )
            for start, end in self._story.losses
            if T0 + start <= self._clock.now_ms()
        ]

    async def ask(self, _: Any) -> list[dict[str, Any]]:
        return []


class NoLifetimes:
    async def ttls_ms(self, environments: Sequence[EnvironmentRef]) -> Mapping[QueueRef, int]:
        return {}


class Simulation:
    """Evaluators on one database, driven by hand."""

    def __init__(self, database: Database, environment: EnvironmentRef, story: Story) -> None:
        self.database, self.environment = database, environment
        self.clock = ManualClock(T0)
        self.warehouse = StoryWarehouse(story, environment, self.clock)
        self.evaluator = self.start("first")
        self.asleep: list[tuple[int, int]] = []

    def start(self, holder: str, *, every: int = 30 * SECOND) -> Evaluator:
        return Evaluator(
            database=self.database,
            warehouse=self.warehouse,
            broker=MemoryBroker(),
            lifetimes=NoLifetimes(),
            lease=EvaluatorLease(self.database, holder=holder),
            clock=self.clock,
            interval_ms=every,
        )

    async def run(self, until: int, *, every: int = 30 * SECOND) -> None:
        """Evaluate from now on until so long after T0, except while the evaluator is asleep."""
        while self.clock.now_ms() - T0 < until:
            self.clock.advance(every)
            now = self.clock.now_ms() - T0
            if not any(start <= now < end for start, end in self.asleep):
                await self.evaluator.evaluate_once()

    async def episodes(self) -> list[tuple[str, int, int | None]]:
        """Every alert: its queue, when it fired and when it was resolved, in seconds after T0."""
        alerts = await AlertRecords(self.database).of(self.environment, limit=1_000)
        return [
            (
                alert.queue,
                (alert.fired_at_ms - T0) // SECOND,
                None if alert.resolved_at_ms is None else (alert.resolved_at_ms - T0) // SECOND,
            )
            for alert in reversed(alerts)
        ]

    async def said(self) -> list[tuple[str, int]]:
        """Every notification: its kind and how many alerts it tells of, in order."""
        async with self.database.connection() as connection:
            cursor = await connection.execute(
                "SELECT kind, jsonb_array_length(document->'alerts') + (document->>'more')::int AS alerts"
                " FROM weir.alert_notifications ORDER BY id"
            )
            return [(row["kind"], row["alerts"]) for row in await cursor.fetchall()]
