"""The story that load management was built for: a hundred pushes on thirty connections."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from support.waiting import until
from weir.admission.admission import Admission
from weir.admission.capacity import AdaptiveLimit
from weir.control.database import Database
from weir.errors import WeirError
from weir.exchange.attempt import DirectPusher
from weir.exchange.seam import Pusher, PushItem
from weir.exchange.service import OperationService
from weir.model.message import Enqueued, NewMessage
from weir.model.names import QueueRef
from weir.testing.memory import MemoryBroker

from .conftest import item, running

CONNECTIONS = 30
CALL_S = 0.5
PATIENCE_S = 0.8


class Pooled:
    """A broker behind thirty connections, each busy for a while with every push."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._pool = asyncio.Semaphore(CONNECTIONS)

    async def enqueue(self, queue: QueueRef, messages: Sequence[NewMessage], **how: Any) -> list[Enqueued]:
        async with self._pool:
            await asyncio.sleep(CALL_S)
            return await self._broker.enqueue(queue, messages, **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)


async def storm(pusher: Pusher, queue: QueueRef) -> tuple[Counter[str], float]:
    """A hundred pushes at once, each with little patience; what they were told, and the slowest 202."""
    slowest = 0.0

    async def one(n: int) -> str:
        nonlocal slowest
        pushed: PushItem = item(queue, str(n), key=f"k{n}")
        started = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE_S):
                (answer,) = await pusher.push([pushed])
        except (TimeoutError, WeirError):
            return "failed"
        name = type(answer).__name__
        if name == "Queued":
            slowest = max(slowest, time.perf_counter() - started)
        return name

    outcomes = Counter(await asyncio.gather(*(one(n) for n in range(100))))
    return outcomes, slowest


async def test_before_seventy_of_a_hundred_pushes_on_thirty_connections_time_out(
    broker: MemoryBroker, queue: QueueRef
) -> None:
    outcomes, _ = await storm(DirectPusher(Pooled(broker)), queue)  # type: ignore[arg-type]
    assert outcomes == {"Pushed": 30, "failed": 70}


async def test_after_thirty_execute_seventy_are_queued_and_all_hundred_arrive(
    database: Database, broker: MemoryBroker, queue: QueueRef
) -> None:
    limit = AdaptiveLimit(initial=CONNECTIONS, minimum=CONNECTIONS, target_ms=1_000)
    service = OperationService(
        database=database,
        broker=Pooled(broker),  # type: ignore[arg-type]
        admission=Admission(limit=limit),
    )
    service.admission.queueing_limit = AdaptiveLimit(initial=100)
    await service.keeper.run_round()
    outcomes, slowest_s = await storm(service.front(), queue)
    assert outcomes["failed"] == 0
    assert outcomes["Pushed"] == 30
    assert outcomes["Queued"] == 100 - outcomes["Pushed"]
    assert slowest_s < PATIENCE_S
    async with running(service):

        async def all_there() -> bool:
            return (await broker.state(queue)).depth == 100

        await until(all_there)
