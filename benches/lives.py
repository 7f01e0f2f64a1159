"""Looking at messages: how exact the parts of waits are, how fast pages and answers are, the cost of lives.

`parts_max_error_ms` is the largest difference of any single part between the clocks of the Redis broker and
the full logs of the memory broker, both driven by the same history of pauses, limits, kills and retries.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis

from benches.lives_history import Compared, History
from benches.lives_rows import find_among, p95
from benches.lives_throughput import history_on_off, log_on_off
from benches.servers import bench_redis
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.embedded.supervised import Supervised
from weir.model.inspection import MessageState
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.spec.ir import QueueSpec
from weir.testing.clocks import ManualClock

ENVIRONMENT = EnvironmentRef(organization="bench", project="lives", environment="full")
_STEPS = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    compared: int
    waiting: int
    asked: int
    ended: int
    processed: int
    """Messages per round, with and without lives."""


FULL = Size(compared=100_000, waiting=1_000_000, asked=1_000, ended=10_000_000, processed=20_000)
QUICK = Size(compared=4_000, waiting=100_000, asked=200, ended=1_000_000, processed=5_000)
_ROUNDS = 9


def run(*, quick: bool, **_: Any) -> dict[str, Any]:
    """Compare the parts of waits, then look at a long queue."""
    return asyncio.run(_measure(QUICK if quick else FULL))


async def _measure(size: Size) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        server = Supervised(
            bench_redis(Path(folder) / "redis", password="bench"),
            log=Path(folder) / "redis.log",
            report=lambda _: None,
        )
        await server.start()
        try:
            processed = await history_on_off(server.server.url, messages=size.processed, rounds=_ROUNDS)
            processed |= await log_on_off(server.server.url, messages=size.processed, rounds=_ROUNDS)
            compared = await _compare(server.server.url, size.compared)
            looked = await _look(server.server.url, size)
        finally:
            await server.stop()
        found = await find_among(size.ended, Path(folder) / "clickhouse", asked=size.asked)
    return {
        "messages_compared": compared.messages,
        "parts_max_error_ms": compared.worst_ms,
        "parts_unknown_pct": round(100 * compared.unknown_ms / max(1, compared.waited_ms), 4),
        **looked,
        **found,
        **processed,
    }


async def _compare(url: str, messages: int) -> Compared:
    found, number = Compared(), 0
    clock = ManualClock()
    broker = RedisBroker(RedisConnection(url=url), clock=clock, chance=lambda: 0.0, metrics=False)
    while found.messages < messages:
        number += 1
        await History(broker, clock, random.Random(number), found).run(_STEPS)
    await broker.aclose()
    return found


async def _look(url: str, size: Size) -> dict[str, Any]:
    broker, queue = RedisBroker(RedisConnection(url=url), metrics=False), ENVIRONMENT.queue("long")
    await broker.define(queue, QueueSpec(name="long"))
    ids = []
    for _ in range(size.waiting // 1_000):
        messages = [NewMessage(payload=b"x" * 100) for _ in range(1_000)]
        await broker.enqueue(queue, messages)
        ids += [message.id for message in messages]
    asked = random.Random(1).sample(ids, size.asked)
    with Redis.from_url(url) as redis:
        redis.config_set("slowlog-log-slower-than", 0)
        redis.config_set("slowlog-max-len", 10_000)
        redis.slowlog_reset()
        cursor: list[str | None] = [None]

        async def turn_page() -> None:
            page = await broker.list_messages(queue, MessageState.READY, cursor=cursor[0])
            cursor[0] = page.cursor

        figures = {
            "page_p95_ms": await p95(lambda _: turn_page(), asked),
            "show_p95_ms": await p95(lambda one: broker.show_message(queue, one), asked),
            "why_p95_ms": await p95(lambda one: broker.why(queue, one), asked),
            "reschedule_p95_ms": await p95(
                lambda one: broker.reschedule(queue, [one], delay_ms=9_000), asked
            ),
        }
        await broker.cancel(queue, asked)
        logged: Any = redis.slowlog_get(10_000)
    await broker.aclose()
    return {**figures, "slowest_script_ms": max(one["duration"] for one in logged) / 1_000}
