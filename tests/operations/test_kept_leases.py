"""Acknowledgments that were answered 202 while Redis was frozen: their messages are not delivered again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from support.api_process import ApiProcess
from support.processes import frozen
from support.servers import RunningServer, redis_server, start_server
from support.waiting import until
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tokens import Tokens
from weir.model.message import Delivery
from weir.model.names import QueueRef
from weir.serve.bootstrap import ADMIN, DEFAULT, keep_token
from weir.spec.ir import Ordering, QueueSpec

QUEUE = "work"
COUNT = 20
LEASE_MS = 1_000


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RunningServer]:
    server = start_server(lambda port: redis_server(tmp_path / "redis", port=port), log_folder=tmp_path)
    yield server
    server.stop()


class House:
    """An API process over its own Redis, and a consumer that pops from Redis directly."""

    def __init__(self, api: ApiProcess, token: str, queue: QueueRef, redis: RunningServer) -> None:
        self.api = api
        self.queue = queue
        self.redis = redis
        self._headers = {"authorization": f"Bearer {token}"}

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx2.AsyncClient]:
        async with httpx2.AsyncClient(
            base_url=f"{self.api.url}/api/v1", headers=self._headers, timeout=30
        ) as client:
            yield client

    async def lease(self, client: httpx2.AsyncClient, broker: RedisBroker) -> list[Delivery]:
        """Push and pop so many messages, under leases whose end is moved close once all are there."""
        pushed = await client.post(
            "/push", json={"items": [{"queue": QUEUE, "payload": n} for n in range(COUNT)]}
        )
        assert pushed.status_code < 300, pushed.text
        got: list[Delivery] = []
        async with asyncio.timeout(60):
            while len(got) < COUNT:
                got += await broker.dequeue(
                    self.queue, consumer="first", limit=COUNT, lease_ms=60_000, wait_ms=500
                )
        await broker.extend([one.lease for one in got], lease_ms=LEASE_MS)
        return got

    async def ack(self, client: httpx2.AsyncClient, delivery: Delivery) -> dict[str, object]:
        lease = {"queue": QUEUE, "id": delivery.message_id, "lease": delivery.lease.token}
        answer = await client.post("/ack", json=lease)
        assert answer.status_code == 202, answer.text
        document: dict[str, object] = answer.json()
        return document

    async def pop_until_done(self, broker: RedisBroker, client: httpx2.AsyncClient) -> list[str]:
        """What is delivered again until nothing is left in the queue."""
        again: list[str] = []

        async def is_done() -> bool:
            got = await broker.dequeue(self.queue, consumer="second", limit=COUNT)
            again.extend(one.message_id for one in got)
            state = await broker.state(self.queue)
            return bool(again) or state.depth + state.running == 0

        await until(is_done, within_s=90)
        return again


@pytest.fixture
async def house(
    own_redis: RunningServer, database_url: str, clickhouse_url: str, tmp_path: Path
) -> AsyncIterator[House]:
    async with Database(database_url) as database:
        queue = DEFAULT.queue(QUEUE)
        await QueueDefinitions(database).define(queue, QueueSpec(name=QUEUE, ordering=Ordering.UNORDERED))
        token = await keep_token(Tokens(database), tmp_path / "admin.token", ADMIN)
    environment = {
        "WEIR_REDIS_URL": own_redis.url,
        "WEIR_POSTGRES_URL": database_url,
        "WEIR_CLICKHOUSE_URL": clickhouse_url,
        "WEIR_SHARDS": "1",
        "WEIR_API__LOG_LEVEL": "WARNING",
    }
    api = ApiProcess(tmp_path, environment)
    await api.start()
    try:
        yield House(api, token, queue, own_redis)
    finally:
        await api.kill()


@pytest.fixture
async def broker(own_redis: RunningServer) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(RedisConnection(url=own_redis.url), shards=1)
    yield broker
    await broker.aclose()


@pytest.mark.parametrize("killed", [False, True], ids=["", "kill -9 of the API"])
async def test_an_ack_that_was_answered_202_is_not_delivered_again(
    house: House, broker: RedisBroker, killed: bool
) -> None:
    async with house.client() as client:
        leased = await house.lease(client, broker)
        with frozen(house.redis.pid):
            answers = [await house.ack(client, leased[0])]
            answers += await asyncio.gather(*(house.ack(client, one) for one in leased[1:]))
            # Past the leases.
            end = asyncio.get_running_loop().time() + 2 * LEASE_MS / 1_000
            await until(lambda: asyncio.get_running_loop().time() > end)
            if killed:
                await house.api.kill()
        if killed:
            # Scripts have nobody who tells them now, and let no lease lapse.
            assert await broker.dequeue(house.queue, consumer="second", limit=COUNT) == []
            await house.api.start()
    assert all(isinstance(one["lease_kept_ms"], int) and one["lease_kept_ms"] > 0 for one in answers)
    async with house.client() as client:
        assert await house.pop_until_done(broker, client) == []
        for one in answers:
            operation = (await client.get(f"/operations/{one['operation_id']}")).json()
            assert operation["status"] == "completed", operation


async def test_a_lease_that_nobody_settled_lapses_beside_a_keeper(house: House, broker: RedisBroker) -> None:
    async with house.client() as client:
        leased = await house.lease(client, broker)
        assert set(await house.pop_until_done(broker, client)) <= {one.message_id for one in leased}
