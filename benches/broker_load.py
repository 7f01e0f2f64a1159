"""The load of the broker bench on Weir's broker: each function measures one thing and returns figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from benches.figures import percentile
from weir.broker.broker import Broker, Shard
from weir.model.message import Delivery, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy, QueueSpec

PAYLOAD = b"x" * 100
SPEC = QueueSpec(name="bench", delivery=DeliveryPolicy(lease_ms=600_000))
BATCH = 100


def percentile_ms(seconds: Sequence[float], share: float) -> float:
    return round(percentile(seconds, share) * 1_000, 3)


def batch_of(count: int) -> list[NewMessage]:
    return [NewMessage(payload=PAYLOAD) for _ in range(count)]


async def enqueue_single(broker: Broker, queue: QueueRef, count: int) -> dict[str, float]:
    times = []
    started = time.perf_counter()
    for _ in range(count):
        before = time.perf_counter()
        await broker.enqueue(queue, batch_of(1))
        times.append(time.perf_counter() - before)
    total = time.perf_counter() - started
    return {
        "enqueue_single_per_s": round(count / total),
        "enqueue_p50_ms": percentile_ms(times, 0.5),
        "enqueue_p99_ms": percentile_ms(times, 0.99),
    }


async def enqueue_batches(broker: Broker, queue: QueueRef, count: int) -> float:
    """Messages per second in batches, with two calls of one client in flight; includes making messages."""
    left = count // BATCH

    async def put() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await broker.enqueue(queue, batch_of(BATCH))

    started = time.perf_counter()
    await asyncio.gather(put(), put())
    return count / (time.perf_counter() - started)


async def drain(broker: Broker, queue: QueueRef, count: int) -> float:
    """Dequeue and ack `count` messages in batches; returns messages per second."""
    done = 0
    started = time.perf_counter()
    while done < count:
        deliveries = await broker.dequeue(queue, consumer="bench", limit=BATCH)
        if not deliveries:
            break
        await broker.ack([delivery.lease for delivery in deliveries])
        done += len(deliveries)
    return done / (time.perf_counter() - started)


async def process(broker: Broker, queue: QueueRef, count: int) -> float:
    """No-op jobs per second in one worker process, with a handler call per job and two batches in flight."""
    handled = 0
    first = last = 0.0

    async def handler(delivery: Delivery) -> None:
        nonlocal handled, first, last
        last = time.perf_counter()
        first = first or last
        handled += 1

    async def work() -> None:
        while handled < count:
            deliveries = await broker.dequeue(queue, consumer="bench", limit=BATCH)
            if not deliveries:
                return
            for delivery in deliveries:
                await handler(delivery)
            await broker.ack([delivery.lease for delivery in deliveries])

    await asyncio.gather(work(), work())
    return (handled - 1) / (last - first)


async def latency(broker: Broker, queue: QueueRef, count: int, *, per_s: int) -> dict[str, float]:
    """The time from enqueue to the handler of a waiting worker, at a steady pace."""
    sent: dict[str, float] = {}
    waits: list[float] = []

    async def work() -> None:
        while len(waits) < count:
            deliveries = await broker.dequeue(queue, consumer="bench", limit=BATCH, wait_ms=1_000)
            now = time.perf_counter()
            waits.extend(now - sent[delivery.message_id] for delivery in deliveries)
            if deliveries:
                await broker.ack([delivery.lease for delivery in deliveries])

    worker = asyncio.create_task(work())
    begun = time.perf_counter()
    for number in range(count):
        await asyncio.sleep(max(0.0, begun + number / per_s - time.perf_counter()))
        message = NewMessage(payload=PAYLOAD)
        sent[message.id] = time.perf_counter()
        await broker.enqueue(queue, [message])
    await worker
    return {"process_p50_ms": percentile_ms(waits, 0.5), "process_p99_ms": percentile_ms(waits, 0.99)}


async def deep_backlog(
    broker: Broker,
    environment: EnvironmentRef,
    *,
    shallow: int,
    deep: int,
    sample: int,
    filled: Callable[[], Awaitable[None]],
) -> dict[str, Any]:
    """Dequeue rate with few and with very many messages waiting, alternating, medians of five."""
    few, many = environment.queue("few"), environment.queue("many")
    for queue in (few, many):
        await broker.define(queue, SPEC)
    for _ in range(deep // 1_000):
        await broker.enqueue(many, batch_of(1_000))
    await filled()
    rates: dict[QueueRef, list[float]] = {few: [], many: []}
    for _ in range(5):
        await enqueue_batches(broker, few, shallow)
        rates[few].append(await drain(broker, few, shallow))
        rates[many].append(await drain(broker, many, sample))
    middle = {queue: sorted(found)[2] for queue, found in rates.items()}
    return {
        "deep_backlog": deep,
        "deep_backlog_ratio": round(middle[many] / middle[few], 3),
        "shallow_per_s": round(middle[few]),
        "deep_per_s": round(middle[many]),
    }


async def noisy_tenant(broker: Broker, *, queues: int, probes: int, per_s: int) -> dict[str, Any]:
    """Latency of calm tenants among many queues, before and while one tenant floods their shard."""
    tenants = [
        EnvironmentRef(organization=f"calm-{n}", project="bench", environment="e")
        for n in range(queues // 100)
    ]
    shard = shard_of(tenants[0], shards=broker.shards)
    near = [tenant for tenant in tenants if shard_of(tenant, shards=broker.shards) == shard]
    for tenant in tenants:
        await asyncio.gather(*(broker.define(tenant.queue(f"q{n}"), SPEC) for n in range(100)))
    places = [tenant.queue(f"q{n}") for n in range(100) for tenant in near]
    quiet = await _calm_latency(broker, shard, places, probes, per_s)
    others = (
        EnvironmentRef(organization="noisy", project="bench", environment=f"e{n}") for n in range(1_000)
    )
    noisy = next(one for one in others if shard_of(one, shards=broker.shards) == shard).queue("flood")
    await broker.define(noisy, replace(SPEC, name="flood"))
    for _ in range(100):
        await broker.enqueue(noisy, batch_of(1_000))
    loud = await _calm_latency(broker, shard, places, probes, per_s)
    return {
        "queues": queues,
        "calm_p99_ms": percentile_ms(quiet, 0.99),
        "calm_p99_with_noisy_tenant_ms": percentile_ms(loud, 0.99),
        "noisy_tenant_ratio": round(percentile_ms(loud, 0.99) / max(percentile_ms(quiet, 0.99), 0.001), 2),
    }


async def _calm_latency(
    broker: Broker, shard: int, places: Sequence[QueueRef], probes: int, per_s: int
) -> list[float]:
    sent: dict[str, float] = {}
    waits: list[float] = []

    async def work() -> None:
        while len(waits) < probes:
            deliveries = await broker.dequeue(Shard(shard), consumer="bench", limit=10, wait_ms=500)
            now = time.perf_counter()
            waits.extend(now - sent[d.message_id] for d in deliveries if d.message_id in sent)
            if deliveries:
                await broker.ack([delivery.lease for delivery in deliveries])

    workers = asyncio.gather(work(), work())
    begun = time.perf_counter()
    for number in range(probes):
        await asyncio.sleep(max(0.0, begun + number / per_s - time.perf_counter()))
        message = NewMessage(payload=PAYLOAD)
        sent[message.id] = time.perf_counter()
        await broker.enqueue(places[number * 7919 % len(places)], [message])
    await workers
    return waits
