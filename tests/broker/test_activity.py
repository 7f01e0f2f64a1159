"""What the broker's seam counts for a process is what the queues' odometers count."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from weir.broker.observed import Observed
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.embedded.ports import free_port
from weir.errors import BrokerUnavailable, NotFound
from weir.model.message import Failure, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import DeliveryPolicy, QueueSpec
from weir.telemetry.process_counts import ProcessCounts
from weir.testing.clocks import ManualClock


@pytest.fixture
def counts() -> ProcessCounts:
    return ProcessCounts()


@pytest.fixture
async def broker(redis_url: str, manual_clock: ManualClock, counts: ProcessCounts) -> AsyncIterator[Observed]:
    inner = RedisBroker(
        RedisConnection(url=redis_url), clock=manual_clock, chance=lambda: 0.0, activity=counts
    )
    yield Observed(inner, activity=counts)
    await inner.aclose()


async def put(broker: Observed, queue: QueueRef, count: int, **options: Any) -> None:
    await broker.enqueue(queue, [NewMessage(payload=b"x", **options) for _ in range(count)])


async def test_deaths_that_a_dequeue_finds_are_counted(
    broker: Observed, environment: EnvironmentRef, manual_clock: ManualClock, counts: ProcessCounts
) -> None:
    queue = environment.queue("q")
    await broker.define(queue, QueueSpec(name="q", delivery=DeliveryPolicy(max_attempts=1)))
    await put(broker, queue, 2)
    await put(broker, queue, 3, ttl_ms=1_000)
    assert len(await broker.dequeue(queue, consumer="c", limit=2, lease_ms=1_000)) == 2
    manual_clock.advance(2_000)
    # Two leases of a last attempt lapsed, and three messages expired. No sweep ran.
    assert await broker.dequeue(queue, consumer="c", limit=9) == []
    totals = (await broker.state(queue)).odometers
    assert counts.take().values == {
        "pushes": totals["enqueued"],
        "pops": totals["dequeued"],
        "lag_count": totals["dequeued"],
        "deaths": totals["dead"] + totals["expired"],
    }
    assert totals["dead"] + totals["expired"] == 5


async def test_a_failed_message_waits_as_long_as_redis_says(
    redis_url: str, environment: EnvironmentRef
) -> None:
    now = [100.0]
    counts = ProcessCounts(monotonic=lambda: now[0])
    inner = RedisBroker(RedisConnection(url=redis_url), chance=lambda: 0.0, activity=counts)
    broker, queue = Observed(inner, activity=counts), environment.queue("q")
    policy = DeliveryPolicy(max_attempts=9, initial_backoff_ms=40_000, max_backoff_ms=90_000)
    await broker.define(queue, QueueSpec(name="q", delivery=policy))
    await put(broker, queue, 4)
    first, second, third, fourth = await broker.dequeue(queue, consumer="c", limit=4)
    await broker.nack([Failure(lease=first.lease), Failure(lease=second.lease)])
    await broker.nack([Failure(lease=third.lease, delay_ms=5_000), Failure(lease=fourth.lease, delay_ms=0)])
    assert counts.backoff() == 3 == (await broker.state(queue)).delayed
    now[0] += 10
    assert counts.backoff() == 2
    now[0] += 31
    assert counts.backoff() == 0
    await inner.aclose()


async def test_an_error_is_a_store_that_failed_and_no_refusal(
    broker: Observed, environment: EnvironmentRef, counts: ProcessCounts
) -> None:
    with pytest.raises(NotFound):
        await put(broker, environment.queue("unknown"), 1)
    assert counts.take().values == {}
    away = RedisBroker(RedisConnection(url=f"redis://127.0.0.1:{free_port()}"))
    with pytest.raises(BrokerUnavailable):
        await put(Observed(away, activity=counts), environment.queue("q"), 1)
    assert counts.take().values == {"errors": 1}
    await away.aclose()
