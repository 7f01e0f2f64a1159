"""The wait that a 202 promises is right within a factor of two for nine in ten."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from support.waiting import until
from weir.admission.admission import Admission
from weir.admission.capacity import QueueBudget
from weir.control.database import Database
from weir.exchange.seam import Queued
from weir.exchange.service import OperationService
from weir.model.message import Enqueued, NewMessage
from weir.model.names import QueueRef
from weir.operations.estimate import RateMeter
from weir.operations.processor import Processor
from weir.testing.memory import MemoryBroker

from .conftest import item, running


class Slow:
    """A broker that takes its time with every call."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    async def enqueue(self, queue: QueueRef, messages: Sequence[NewMessage], **how: Any) -> list[Enqueued]:
        await asyncio.sleep(0.1)
        return await self._broker.enqueue(queue, messages, **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)


@pytest.mark.slow
async def test_nine_in_ten_estimates_are_right_within_a_factor_of_two(
    database: Database, broker: MemoryBroker, queue: QueueRef
) -> None:
    admission = Admission(budget=QueueBudget(burst=10_000))
    service = OperationService(database=database, broker=Slow(broker), admission=admission)  # type: ignore[arg-type]
    service.processor = Processor(
        queue=service.queue,
        broker=Slow(broker),
        meter=service.meter,
        partitions=10,
        run=1,
        total=10,  # type: ignore[arg-type]
    )
    promised: dict[str, int] = {}
    chance = random.Random(7)
    async with running(service):
        for burst in range(40):
            items = [item(queue, str(n), key=f"{burst}-{n}") for n in range(chance.randint(1, 20))]
            for answer in await service.intake.queue(items):
                assert isinstance(answer, Queued)
                if burst >= 10 and answer.estimated_wait_ms is not None:
                    promised[answer.operation_id] = answer.estimated_wait_ms
            await asyncio.sleep(chance.uniform(0.05, 0.25))

        async def empty() -> bool:
            return await service.queue.depth() == 0

        await until(empty, within_s=60)
    right = 0
    for operation_id, wait_ms in promised.items():
        took = (await service.store.read(queue.scope, operation_id))["latency_ms"]
        right += 0.5 <= max(1, wait_ms) / max(1, took) <= 2
    print(f"{right} of {len(promised)} estimates within a factor of 2")
    assert len(promised) > 200
    assert right / len(promised) >= 0.9


class Stopwatch:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def lone_rounds(meter: RateMeter, watch: Stopwatch, count: int) -> None:
    """Rounds with one operation each, which waited 20 ms and found nothing ahead."""
    for _ in range(count):
        watch.now_s += 0.1
        meter.note_round(operations=1, room=500, took_s=0.015, ages_ms=[20])


@pytest.mark.parametrize("before", [0, 20])
def test_an_outage_that_operations_waited_out_is_not_promised_to_the_next(before: int) -> None:
    watch = Stopwatch()
    meter = RateMeter(monotonic=watch)
    lone_rounds(meter, watch, before)
    meter.note_round(operations=3, room=500, took_s=0.015, ages_ms=[2_960, 2_989, 3_010])
    wait_ms = meter.rate.wait_ms(1)
    assert wait_ms is not None
    assert 10 <= wait_ms <= 60


def test_a_round_that_a_store_held_up_is_forgotten_within_seconds() -> None:
    watch = Stopwatch()
    meter = RateMeter(monotonic=watch)
    lone_rounds(meter, watch, 20)
    meter.note_round(operations=1, room=500, took_s=3.0, ages_ms=[3_005])
    assert (meter.rate.wait_ms(1) or 0) > 500
    watch.now_s += 5
    assert 10 <= (meter.rate.wait_ms(1) or 0) <= 60
    watch.now_s += 60
    calm = meter.rate
    watch.now_s += 60
    assert meter.rate == calm  # so that it is not told to the others again and again


def test_a_store_that_stays_slow_is_promised_as_slow() -> None:
    watch = Stopwatch()
    meter = RateMeter(monotonic=watch)
    lone_rounds(meter, watch, 20)
    for _ in range(12):
        watch.now_s += 0.5
        meter.note_round(operations=1, room=500, took_s=0.3, ages_ms=[400])
    assert 200 <= (meter.rate.wait_ms(1) or 0) <= 800
