"""Joins the parts of load management of one process; `serve` starts them, and the routes use them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from weir.admission.admission import Admission
from weir.broker.broker import Broker
from weir.control.database import Database
from weir.exchange.admit import AdmittingPusher, AnswerTally, Overflow
from weir.exchange.attempt import DirectAttempt
from weir.exchange.intake import Intake
from weir.exchange.seam import Pusher, Settler
from weir.exchange.settle import CountedSettler, Settlements
from weir.model.ids import CallSlots, new_id
from weir.operations.estimate import DepthSampler, LagSampler, RateMeter
from weir.operations.gates import Gates, Known, Reach
from weir.operations.keeper import Keeper
from weir.operations.maintenance import Cleaner, IdleCalls, OrphanGates
from weir.operations.model import ALLOWANCE_MS
from weir.operations.processor import ChainRecorder, Processor
from weir.operations.queue import OperationQueue
from weir.operations.store import OperationStore
from weir.operations.writer import OperationWriter


class OperationService:
    """`database` should be a pool that nothing else uses: overflow has its own reserved connections.

    `known` tells whether a queue is defined while the broker cannot; without it every queue counts as such.
    """

    def __init__(
        self,
        *,
        database: Database,
        broker: Broker,
        admission: Admission | None = None,
        process: str | None = None,
        allowance_ms: int = ALLOWANCE_MS,
        processing: bool = True,
        known: Known | None = None,
        chained: ChainRecorder | None = None,
    ) -> None:
        process = process or new_id()
        self.admission = admission or Admission()
        self.reach = Reach(broker.shards)
        self.queue = OperationQueue(database, allowance_ms=allowance_ms)
        self.meter = RateMeter()
        self.tally = AnswerTally()
        self.pool_state = database.state
        self.processor = Processor(
            queue=self.queue,
            broker=broker,
            meter=self.meter,
            worker=process,
            pressed=lambda: self.admission.pressed,
            chained=chained,
        )
        self.keeper = Keeper(database=database, broker=broker, reach=self.reach, allowance_ms=allowance_ms)
        self.sampler = DepthSampler(
            queue=self.queue, admission=self.admission, meter=self.meter, process=process
        )
        self.writer = OperationWriter(
            self.queue,
            gates=Gates(broker=broker, reach=self.reach, known=known),
            added=self._note_depth,
        )
        self.overflow = Overflow(
            writer=self.writer, admission=self.admission, tally=self.tally, rate=lambda: self.sampler.rate
        )
        self.attempt = DirectAttempt(broker=broker, reach=self.reach, calls=CallSlots(process))
        self.intake = Intake(self.overflow, broker=broker, reach=self.reach)
        self.settlements = Settlements(broker=broker, overflow=self.overflow, reach=self.reach)
        self.orphans = OrphanGates(queue=self.queue, broker=broker)
        self.idle_calls = IdleCalls(queue=self.queue, broker=broker)
        self.store = OperationStore(database=database, broker=broker)
        self.cleaner = Cleaner(database=database, queue=self.queue)
        self._lag = LagSampler(self.admission)
        self._processing = processing

    def front(self, attempt: Pusher | None = None) -> AdmittingPusher:
        """The pusher for pushes of producers; `attempt` executes the pushes that are admitted."""
        return AdmittingPusher(
            attempt or self.attempt, intake=self.intake, overflow=self.overflow, admission=self.admission
        )

    def counted_settler(self, settler: Settler) -> Settler:
        return CountedSettler(settler, self.tally)

    def _note_depth(self, depth: int) -> None:
        self.admission.depth = depth
        self.processor.wake()

    def loops(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """Everything that runs beside the requests, by name."""
        loops: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "keeper": self.keeper.run,
            "orphan-gates": self.orphans.run,
            "idle-calls": self.idle_calls.run,
            "operation-depth": self.sampler.run,
            "operation-cleaner": self.cleaner.run,
            "event-loop-lag": self._lag.run,
        }
        return {**loops, "processor": self.processor.run} if self._processing else loops

    async def run(self) -> None:
        """All loops at once, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for loop in self.loops().values():
                tasks.create_task(loop())
