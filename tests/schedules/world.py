"""A small world for tests of schedules: a memory broker and PostgreSQL, on a clock that stands still."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from weir.broker.broker import Broker
from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.exchange.attempt import DirectPusher
from weir.exchange.seam import PushAnswer, Pusher, PushItem
from weir.model.message import Delivery
from weir.model.message_headers import SCHEDULE as SCHEDULE_HEADER
from weir.model.names import EnvironmentRef, QueueRef
from weir.schedules.register import Schedules
from weir.schedules.schedule import Schedule, ScheduleRun
from weir.schedules.scheduler import Scheduler
from weir.schedules.ticks import TICK_HEADER
from weir.spec.ir import QueueSpec, Retention, ScheduleSpec, Timing
from weir.testing.clocks import ManualClock
from weir.testing.memory import MemoryBroker

HOUR_MS = 3_600_000


class CrashingPusher:
    """Pushes, and dies before it can say so as often as `crashes` says."""

    def __init__(self, inner: Pusher) -> None:
        self.inner = inner
        self.crashes = 0

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        answers = await self.inner.push(items)
        if self.crashes:
            self.crashes -= 1
            end_here()
            await asyncio.sleep(0)
        return answers


def end_here() -> None:
    """End the asyncio task at its next step: it has no time for anything."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


@dataclass
class World:
    database: Database
    environment: EnvironmentRef
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_800_000_000_000))

    def __post_init__(self) -> None:
        self.broker: Broker = MemoryBroker(shards=2, clock=self.clock)
        self.schedules = Schedules(self.database, self.broker, clock=self.clock)
        self.pusher = CrashingPusher(DirectPusher(self.broker))
        self.scheduler = self.new_scheduler(self.database)

    def new_scheduler(self, database: Database) -> Scheduler:
        return Scheduler(database, self.broker, self.pusher, clock=self.clock)

    async def define(self, name: str = "q", *, max_depth: int | None = None, **options: Any) -> QueueRef:
        queue = self.environment.queue(name)
        spec = QueueSpec(name=name, retention=Retention(max_depth=max_depth), **options)
        await QueueDefinitions(self.database).define(queue, spec)
        await self.broker.define(queue, spec)
        return queue

    async def create(self, name: str = "s", *, queue: str = "q", **options: Any) -> Schedule:
        timing = Timing(
            **{part: options.pop(part) for part in ("cron", "every_ms", "timezone") if part in options}
        )
        spec = ScheduleSpec(name=name, queue=queue, timing=timing, **options)
        return await self.schedules.create(self.environment, spec)

    async def serve(self) -> None:
        """Let the scheduler do everything that is due now."""
        while await self.scheduler.run_round():
            pass

    async def die(self) -> None:
        """Run a round whose process dies between its push and its record."""
        self.pusher.crashes = 1
        (ended,) = await asyncio.gather(
            asyncio.create_task(self.scheduler.run_round()), return_exceptions=True
        )
        assert isinstance(ended, asyncio.CancelledError)

    async def pass_ms(self, ms: int) -> None:
        """Let time pass while nothing runs, then serve."""
        self.clock.advance(ms)
        await self.serve()

    async def take(self, queue: QueueRef, *, ack: bool = True) -> list[Delivery]:
        """Everything that waits in the queue."""
        found: list[Delivery] = []
        while batch := await self.broker.dequeue(queue, consumer="test", limit=100):
            found += batch
            if ack:
                await self.broker.ack([one.lease for one in batch])
        return found

    async def runs(self, name: str = "s") -> list[ScheduleRun]:
        return list((await self.schedules.show(self.environment, name)).runs)

    async def outcomes(self, name: str = "s") -> list[tuple[str, int]]:
        """The outcome and the number of ticks of the last runs, oldest first."""
        return [(run.outcome.value, run.ticks) for run in reversed(await self.runs(name))]


def ticks_of(deliveries: Sequence[Delivery]) -> list[tuple[str, str]]:
    return [(one.headers[SCHEDULE_HEADER], one.headers[TICK_HEADER]) for one in deliveries]


def payloads_of(deliveries: Sequence[Delivery]) -> list[Any]:
    return [json.loads(one.payload) for one in deliveries]
