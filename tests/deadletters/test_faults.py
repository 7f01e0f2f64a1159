"""PostgreSQL away, processes killed: nothing is lost and nothing is done twice. Real servers, real kills."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.servers import RunningServer
from support.urls import with_database
from support.waiting import until
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.migrate import migrate_postgres
from weir.deadletters.audit import DeadLetterAuditor
from weir.deadletters.bulk_action_runner import BulkActionRunner
from weir.deadletters.bulk_action_store import BulkActionStore
from weir.deadletters.bulk_actions import BulkActionKind, NewBulkAction
from weir.deadletters.filters import Filter
from weir.deadletters.mover import Mover
from weir.deadletters.rates import SendLimits
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.message import Failure, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import DeliveryPolicy, QueueSpec

DOWN_S = 60.0
COUNTS = """
SELECT (SELECT count(*) FROM weir.dead_letters) AS letters,
       (SELECT sum(dead_count) FROM weir.dlq_summary)::bigint AS summary,
       (SELECT sum(total_count) FROM weir.dead_letter_groups)::bigint AS groups
"""


@pytest.fixture
def own_redis(redis_url: str) -> str:
    """A database that no other test uses: movers take everything that is dead in it."""
    return with_database(redis_url, "6")


@asynccontextmanager
async def stores(postgres: RunningServer, redis_url: str) -> AsyncIterator[tuple[RedisBroker, Database]]:
    broker = RedisBroker(RedisConnection(url=redis_url))
    async with Database(postgres.url, max_size=4) as database:
        await migrate_postgres(database)
        yield broker, database
    await broker.aclose()


async def define(broker: RedisBroker, environment: EnvironmentRef) -> QueueRef:
    queue = environment.queue("orders")
    await broker.define(queue, QueueSpec(name="orders", delivery=DeliveryPolicy(max_attempts=1)))
    return queue


async def kill_messages(broker: RedisBroker, queue: QueueRef, count: int) -> set[str]:
    messages = [NewMessage(payload=b"{}") for _ in range(count)]
    await broker.enqueue(queue, messages)
    deliveries = await broker.dequeue(queue, consumer="t", limit=count)
    await broker.nack([Failure(lease=one.lease, error=f"boom {n}") for n, one in enumerate(deliveries)])
    return {message.id for message in messages}


@pytest.mark.fault
def test_messages_that_die_while_postgresql_is_down_for_a_minute_are_all_moved_once(
    postgres: RunningServer, own_redis: str, environment: EnvironmentRef
) -> None:
    asyncio.run(_outage(postgres, own_redis, environment))


async def _outage(postgres: RunningServer, redis_url: str, environment: EnvironmentRef) -> None:
    async with stores(postgres, redis_url) as (broker, database):
        queue = await define(broker, environment)
        movers = [asyncio.create_task(Mover(broker, database, batch=100).run()) for _ in range(2)]
        died = await kill_messages(broker, queue, 300)
        await asyncio.to_thread(postgres.kill)
        give_up = asyncio.get_running_loop().time() + DOWN_S
        while asyncio.get_running_loop().time() < give_up:
            died |= await kill_messages(broker, queue, 50)
            await asyncio.sleep(0.5)
        assert not any(mover.done() for mover in movers)
        await asyncio.to_thread(postgres.start)

        async def moved() -> bool:
            shards = range(broker.shards)
            mine = [one for s in shards for one in await broker.take_dead(s) if one.queue == queue]
            return not mine

        await until(moved, within_s=60)
        async with database.connection() as connection:
            row: Any = await (await connection.execute(COUNTS)).fetchone()
            ids = await (await connection.execute("SELECT id::text FROM weir.dead_letters")).fetchall()
        assert {one["id"] for one in ids} == died
        assert (row["letters"], row["summary"], row["groups"]) == (len(died),) * 3
        audit = await DeadLetterAuditor(database).audit(force=True)
        assert audit is not None
        assert audit.drift == 0
        await cancel_and_wait(movers)


@pytest.mark.fault
def test_a_redrive_process_that_is_killed_is_finished_by_another_without_sending_anything_twice(
    postgres: RunningServer, own_redis: str, environment: EnvironmentRef, tmp_path: Path
) -> None:
    asyncio.run(_killed_redrives(postgres, own_redis, environment, tmp_path))


async def _killed_redrives(
    postgres: RunningServer, redis_url: str, environment: EnvironmentRef, tmp_path: Path
) -> None:
    async with stores(postgres, redis_url) as (broker, database):
        queue = await define(broker, environment)
        for _ in range(6):
            await kill_messages(broker, queue, 1_000)
        mover = Mover(broker, database)
        while await mover.run_round():
            pass
        actions = BulkActionStore(database, broker)
        new = NewBulkAction(
            kind=BulkActionKind.REDRIVE,
            filter=Filter(queue="orders"),
            limits=SendLimits(rate_per_s=1_500),
        )
        action = await actions.create(environment, new, by="test")
        for kill in range(4):
            process = await _runner_process(postgres.url, redis_url)

            async def further(least: int = 600 * (kill + 1)) -> bool:
                return (await actions.find(environment, action.id)).done >= least

            await until(further, within_s=60)
            process.kill()
            await process.wait()
        runner = BulkActionRunner(broker, database)
        while not (action := await actions.find(environment, action.id)).state.over:
            if await runner.step(action.id) is None:
                await asyncio.sleep(0.05)
        assert (action.state, action.done) == ("completed", 6_000)
        parents: Counter[str] = Counter()
        while deliveries := await broker.dequeue(queue, consumer="t", limit=1_000):
            parents.update(delivery.headers["weir-replay-of"] for delivery in deliveries)
            await broker.ack([delivery.lease for delivery in deliveries])
        assert len(parents) == 6_000
        assert set(parents.values()) == {1}
        audit = await DeadLetterAuditor(database).audit(force=True)
        assert audit is not None
        assert audit.drift == 0


_RUNNER = """
import asyncio, sys
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.deadletters.bulk_action_runner import BulkActionRunner
async def main():
    async with Database(sys.argv[1], max_size=2) as database:
        await BulkActionRunner(RedisBroker(RedisConnection(url=sys.argv[2])), database).run()
asyncio.run(main())
"""


async def _runner_process(postgres_url: str, redis_url: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", _RUNNER, postgres_url, redis_url, env=dict(os.environ)
    )
