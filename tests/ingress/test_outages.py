"""Webhooks while Redis is away: taken through the operation queue, in order, known by their ids."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import httpx2
import pytest

from ingress import signing
from ingress.house import SECRET, House
from support.secrets import fixed_secrets
from support.tcp_proxy import TcpProxy
from support.waiting import until
from weir.api.app import create_app
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.exchange.service import OperationService
from weir.ingress.receive import Receiver
from weir.model.asyncio_tasks import cancel_and_wait

SPEC = """
app Hooks {
  queue In { ordering: fifo }
  webhook Signed {
    queue: In
    verify_hmac { header: "X-Sig", secret: "HOOK" }
    idempotency_header: "X-Id"
  }
}
"""


@dataclass(frozen=True, kw_only=True)
class Front:
    """The webhooks of a process with an operation queue; its stores are behind proxies."""

    client: httpx2.AsyncClient
    redis: TcpProxy
    postgres: TcpProxy
    operations: OperationService

    async def hook(self, number: int) -> httpx2.Response:
        body = b'{"n": %d}' % number
        headers = {
            "content-type": "application/json",
            "x-id": f"d-{number}",
            **signing.plain(SECRET, body, 0),
        }
        return await self.client.post("/hook/Signed", content=body, headers=headers)


@pytest.fixture
async def front(house: House, redis_url: str, database_url: str) -> AsyncIterator[Front]:
    await house.apply(SPEC)
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(TcpProxy.to(redis_url))
        postgres = await stack.enter_async_context(TcpProxy.to(database_url))
        broker = RedisBroker(RedisConnection(url=redis.url))
        stack.push_async_callback(broker.aclose)
        reserved = Database(postgres.url, max_size=2, timeout_s=0.5)
        stack.push_async_callback(reserved.aclose)
        await reserved.open(wait_s=10)
        operations = OperationService(database=reserved, broker=broker)
        receiver = Receiver(house.registry, operations.front(), secrets=fixed_secrets(house.secrets))
        app = create_app(replace(house.services, receiver=receiver))
        transport = httpx2.ASGITransport(app=app)
        client = await stack.enter_async_context(
            httpx2.AsyncClient(transport=transport, base_url="http://weir")
        )
        # Pushes go straight to Redis from the keeper's first round on.
        await operations.keeper.run_round()
        running = asyncio.create_task(operations.run())
        try:
            yield Front(client=client, redis=redis, postgres=postgres, operations=operations)
        finally:
            redis.heal()
            postgres.heal()
            await cancel_and_wait([running])


async def test_without_redis_webhooks_are_taken_and_arrive_in_order(front: Front, house: House) -> None:
    answers = [await front.hook(0)]
    assert answers[0].json()["id"]
    front.redis.refuse()
    shard = front.operations.reach.shard(house.environment.queue("In"))
    await until(lambda: shard in front.operations.reach.lost)
    for number in range(1, 6):
        answers.append(answer := await front.hook(number))
        assert answer.status_code == 202
        assert answer.headers.get("location", "").startswith("/api/v1/operations/"), (number, answer.json())
        # Whether it is the first with its id only the broker knows.
        assert "id" not in answer.json()
    repeated = await front.hook(3)
    assert repeated.headers["idempotency-replayed"] == "true"
    assert repeated.headers["location"] == answers[3].headers["location"]
    front.redis.heal()
    async with asyncio.timeout(20):
        while await house.depth("In") < 6:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert (await front.hook(2)).headers["location"] == answers[2].headers["location"]
    taken: list[str | None] = []
    while len(taken) < 6:
        (delivery,) = await house.broker.dequeue(house.environment.queue("In"), consumer="c")
        taken.append(delivery.idempotency_key)
        await house.broker.ack([delivery.lease])
    assert taken == [f"Signed:{answer.json()['idempotency_key']}" for answer in answers]
    assert await house.depth("In") == 0


async def test_without_redis_and_postgresql_a_webhook_is_503_within_a_second(front: Front) -> None:
    assert (await front.hook(0)).status_code == 202
    front.redis.refuse()
    front.postgres.refuse()
    for number in (1, 2):
        started = time.monotonic()
        answer = await front.hook(number)
        assert time.monotonic() - started < 1
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
    front.redis.heal()
    front.postgres.heal()
    async with asyncio.timeout(20):
        while (await front.hook(1)).status_code != 202:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
