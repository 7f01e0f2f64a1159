"""Real API processes, killed one after the other: no tick is missing and none comes twice."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path

import pytest

from support.api_process import ApiProcess
from support.urls import with_database
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.model.message_headers import SCHEDULE as SCHEDULE_HEADER
from weir.model.names import EnvironmentRef, QueueRef
from weir.schedules.register import Schedules
from weir.schedules.ticks import TICK_HEADER
from weir.spec.ir import MissedTicks, QueueSpec, ScheduleSpec, Timing
from weir.spec.timing import newest_ticks

MINUTES = 10.0
KILL_EVERY_S = 10.0
PROCESSES = 3
TIMINGS = {
    "second": Timing(every_ms=1_000),
    "three": Timing(every_ms=3_000),
    "minute": Timing(cron="* * * * *", timezone="America/New_York"),
}
Tick = tuple[str, int]


@pytest.mark.fault
async def test_three_processes_of_which_one_is_killed_every_ten_seconds_miss_and_double_no_tick(
    database_url: str, redis_url: str, warehouse_url: str, environment: EnvironmentRef, tmp_path: Path
) -> None:
    # A database of its own in Redis: the epoch of another test's process would not be this one's.
    redis_url = with_database(redis_url, "7")
    variables = {
        "WEIR_REDIS_URL": redis_url,
        "WEIR_POSTGRES_URL": database_url,
        "WEIR_CLICKHOUSE_URL": warehouse_url,
    }
    broker = RedisBroker(RedisConnection(url=redis_url))
    queue = environment.queue("ticks")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(broker.aclose)
        database = await stack.enter_async_context(Database(database_url))
        processes = [ApiProcess(tmp_path, variables) for _ in range(PROCESSES)]
        for process in processes:
            stack.push_async_callback(process.kill)
            await process.start()
        await _define(broker, database, queue)
        begun = await _create(database, broker, environment)
        seen = await _kill_one_after_the_other(processes, broker, queue)
        ended_ms = await _now_ms(database)
        await asyncio.sleep(3)
        seen += await _take(broker, queue)
    expected = {
        (name, tick)
        for name, timing in TIMINGS.items()
        for tick in newest_ticks(timing, after_ms=begun[name], until_ms=ended_ms, limit=1_000_000)[0]
    }
    found = Counter({tick: count for tick, count in seen.items() if tick[1] <= ended_ms})
    assert (expected - set(found), set(found) - expected) == (set(), set())
    assert {tick: count for tick, count in found.items() if count > 1} == {}


async def _define(broker: RedisBroker, database: Database, queue: QueueRef) -> None:
    spec = QueueSpec(name=queue.queue)
    await QueueDefinitions(database).define(queue, spec)
    await broker.define(queue, spec)


async def _now_ms(database: Database) -> int:
    async with database.connection() as connection:
        row = await (await connection.execute("SELECT weir.clock_ms() AS now_ms")).fetchone()
    assert row is not None
    return int(row["now_ms"])


async def _create(database: Database, broker: RedisBroker, environment: EnvironmentRef) -> dict[str, int]:
    """Make the schedules; from when each of them ticks."""
    schedules = Schedules(database, broker)
    begun = {}
    for name, timing in TIMINGS.items():
        spec = ScheduleSpec(name=name, queue="ticks", timing=timing, missed=MissedTicks.ALL)
        begun[name] = (await schedules.create(environment, spec)).last_tick_ms
    return begun


async def _kill_one_after_the_other(
    processes: list[ApiProcess], broker: RedisBroker, queue: QueueRef
) -> Counter[Tick]:
    seen: Counter[Tick] = Counter()
    chance = random.Random(3)
    end_s = time.monotonic() + MINUTES * 60
    while time.monotonic() < end_s:
        victim = chance.choice(processes)
        await victim.kill()
        next_s = time.monotonic() + KILL_EVERY_S
        await victim.start()
        while time.monotonic() < next_s:
            seen += await _take(broker, queue)
            await asyncio.sleep(0.2)
    return seen


async def _take(broker: RedisBroker, queue: QueueRef) -> Counter[Tick]:
    taken: Counter[Tick] = Counter()
    while batch := await broker.dequeue(queue, consumer="test", limit=100):
        await broker.ack([one.lease for one in batch])
        for one in batch:
            tick_ms = round(datetime.fromisoformat(one.headers[TICK_HEADER]).timestamp() * 1_000)
            taken[one.headers[SCHEDULE_HEADER], tick_ms] += 1
    return taken
