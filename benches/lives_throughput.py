"""The cost of lives and logs: messages processed per second with them and without."""

from __future__ import annotations

import asyncio
import time
from statistics import median

from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.durations import DAY_MS
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import QueueSpec
from weir.telemetry.events import LOG
from weir.telemetry.streams import stream_key

ENVIRONMENT = EnvironmentRef(organization="bench", project="lives", environment="processed")
_TOGETHER = 100
_CONSUMERS = 4


async def history_on_off(url: str, *, messages: int, rounds: int) -> dict[str, float]:
    """The rates with and without lives, and their ratio: the median over pairs of rounds in turns."""
    broker = RedisBroker(RedisConnection(url=url))
    queues = {history: ENVIRONMENT.queue(f"history-{history}") for history in (0, 1)}
    for history, queue in queues.items():
        await broker.define(queue, QueueSpec(name=queue.queue, history=history))
        await _process(broker, queue, messages // 10)
    rates: dict[int, list[float]] = {0: [], 1: []}
    for number in range(rounds):
        for history in (0, 1) if number % 2 else (1, 0):
            rates[history].append(await _process(broker, queues[history], messages))
    await broker.aclose()
    pairs = zip(rates[1], rates[0], strict=True)
    return {
        "history_all_per_s": round(median(rates[1])),
        "history_none_per_s": round(median(rates[0])),
        "history_on_off": round(median(on / off for on, off in pairs), 3),
    }


async def log_on_off(url: str, *, messages: int, rounds: int) -> dict[str, float]:
    """The rates with and without a log, both with all lives; and the bytes of a message in the stream."""
    broker = RedisBroker(RedisConnection(url=url))
    queues = {log_ms: ENVIRONMENT.queue(f"log-{log_ms or 0}") for log_ms in (None, 30 * DAY_MS)}
    for log_ms, queue in queues.items():
        await broker.define(queue, QueueSpec(name=queue.queue, log_ms=log_ms))
        await _process(broker, queue, messages // 10)
    rates: dict[int | None, list[float]] = {log_ms: [] for log_ms in queues}
    for number in range(rounds):
        for log_ms in list(queues) if number % 2 else reversed(queues):
            rates[log_ms].append(await _process(broker, queues[log_ms], messages))
    stream = stream_key(LOG.name, shard_of(ENVIRONMENT, shards=broker.shards))
    used: int = await broker._runner.client.execute_command("MEMORY", "USAGE", stream)
    await broker.aclose()
    off, on = rates.values()
    logged = messages // 10 + rounds * messages
    return {
        "log_on_per_s": round(median(on)),
        "log_off_per_s": round(median(off)),
        "log_on_off": round(median(one / other for one, other in zip(on, off, strict=True)), 3),
        "log_stream_bytes": round(used / logged),
    }


async def _process(broker: RedisBroker, queue: QueueRef, messages: int) -> float:
    """Enqueue messages while consumers dequeue and ack them; returns messages per second."""
    started, left = time.perf_counter(), [messages]

    async def produce() -> None:
        for _ in range(messages // _TOGETHER):
            await broker.enqueue(queue, [NewMessage(payload=b"x" * 100) for _ in range(_TOGETHER)])

    async def consume(name: str) -> None:
        while left[0] > 0:
            found = await broker.dequeue(queue, consumer=name, limit=_TOGETHER, wait_ms=50)
            left[0] -= len(found)
            if found:
                await broker.ack([one.lease for one in found])

    await asyncio.gather(produce(), *(consume(f"consumer-{number}") for number in range(_CONSUMERS)))
    return messages / (time.perf_counter() - started)
