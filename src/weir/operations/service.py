"""The parts of load management of one process, joined: what `serve` starts and the routes use."""

from __future__ import annotations

import asyncio

from weir.admission.admission import Admission
from weir.broker.broker import Broker
from weir.control.database import Database
from weir.model.ids import new_id
from weir.operations.calls import CallLanes
from weir.operations.desk import Desk
from weir.operations.estimate import RateMeter
from weir.operations.intake import Intake
from weir.operations.keeper import LEASE_MS, Keeper
from weir.operations.maintenance import Cleaner, DepthSampler, LagSampler
from weir.operations.overflow import Overflow
from weir.operations.processor import Processor
from weir.operations.queue import OperationQueue
from weir.operations.reach import Reach
from weir.operations.settling import Settlements
from weir.operations.writer import OperationWriter


class OperationService:
    """`database` should be a pool that nothing else uses: overflow has its own reserved connections."""

    def __init__(
        self,
        *,
        database: Database,
        broker: Broker,
        admission: Admission | None = None,
        process: str | None = None,
        lease_ms: int = LEASE_MS,
        processing: bool = True,
    ) -> None:
        process = process or new_id()
        self.admission = admission or Admission()
        self.reach = Reach()
        self.queue = OperationQueue(database)
        self.meter = RateMeter()
        self.processor = Processor(queue=self.queue, broker=broker, meter=self.meter, worker=process)
        self.keeper = Keeper(database=database, broker=broker, reach=self.reach, lease_ms=lease_ms)
        self.sampler = DepthSampler(
            queue=self.queue, admission=self.admission, meter=self.meter, process=process
        )
        self.writer = OperationWriter(self.queue, added=self._added)
        overflow = Overflow(
            broker=broker,
            writer=self.writer,
            admission=self.admission,
            reach=self.reach,
            rate=self.sampler.current,
        )
        self.intake = Intake(
            broker=broker,
            overflow=overflow,
            admission=self.admission,
            reach=self.reach,
            calls=CallLanes(process),
        )
        self.settlements = Settlements(broker=broker, overflow=overflow, reach=self.reach)
        self.desk = Desk(database=database, broker=broker)
        self.cleaner = Cleaner(database=database, queue=self.queue)
        self._lag = LagSampler(self.admission)
        self._processing = processing

    def _added(self, depth: int) -> None:
        self.admission.depth = depth
        self.processor.wake()

    async def run(self) -> None:
        """Everything that runs beside the requests, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for loop in (self.keeper, self.sampler, self.cleaner, self._lag):
                tasks.create_task(loop.run())
            if self._processing:
                tasks.create_task(self.processor.run())
