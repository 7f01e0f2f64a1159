"""PostgreSQL hangs and Redis is well: pushes go on, and a push that was refused never appears."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from support.api_process import ApiProcess
from support.processes import frozen_tree
from support.servers import RunningServer
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.migrate import migrate_postgres
from weir.control.principals import Role
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tokens import NewToken, Tokens
from weir.operations.queue import OperationQueue
from weir.serve.bootstrap import ADMIN, DEFAULT, keep_token
from weir.spec.ir import QueueSpec

CALM, PRESSED = "calm", "pressed"
PRODUCERS = 4
# Producers of the calm process pause, so that their pushes are as many as the API answers in time, and not as
# many as a machine with other work has room for.
PAUSES_S = {CALM: 0.02, PRESSED: 1.0}
QUICK_S = 8.0
"""Long enough for a push that must be queued to be told 503. Each token waits for half a second, once."""


@dataclass
class Told:
    """What producers were told about each message, and when."""

    queue: str
    statuses: dict[str, int] = field(default_factory=dict)
    at_s: dict[str, float] = field(default_factory=dict)
    longest_s: float = 0.0

    def note(self, message: str, status: int, took_s: float) -> None:
        self.statuses[message], self.at_s[message] = status, time.monotonic()
        self.longest_s = max(self.longest_s, took_s)

    def taken(self, from_s: float, to_s: float) -> int:
        """How many were answered 201 or 202 in this time."""
        return sum(
            self.statuses[message] in (201, 202)
            for message, at_s in self.at_s.items()
            if from_s <= at_s < to_s
        )

    @property
    def accepted(self) -> set[str]:
        return {message for message, status in self.statuses.items() if status in (201, 202)}


@dataclass(frozen=True, kw_only=True)
class House:
    """Two API processes on the same stores: one calm, one that queues every push."""

    calm: ApiProcess
    pressed: ApiProcess
    token: str
    new_token: str
    postgres: RunningServer
    redis_url: str

    def client(self, process: ApiProcess, token: str | None = None) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            base_url=process.url, headers={"authorization": f"Bearer {token or self.token}"}, timeout=60
        )


@asynccontextmanager
async def opened(
    folder: Path, postgres: RunningServer, redis_url: str, clickhouse_url: str
) -> AsyncIterator[House]:
    async with Database(postgres.url) as database:
        await migrate_postgres(database)
        for name in (CALM, PRESSED):
            await QueueDefinitions(database).define(DEFAULT.queue(name), QueueSpec(name=name))
        tokens = Tokens(database)
        token = await keep_token(tokens, folder / "admin.token", ADMIN)
        new = NewToken(name="new", role=Role.ADMIN, organization=DEFAULT.organization)
        new_token, _ = await tokens.create(new)
    environment = {
        "WEIR_REDIS_URL": redis_url,
        "WEIR_POSTGRES_URL": postgres.url,
        "WEIR_CLICKHOUSE_URL": clickhouse_url,
        # Known tokens go stale while PostgreSQL hangs, also in the quick variant.
        "WEIR_API__TOKEN_FRESH_S": "1",
    }
    calm = ApiProcess(folder, environment)
    pressed = ApiProcess(folder, {**environment, "WEIR_LOAD__PUSH_UTILIZATION": "0.0001"})
    try:
        await asyncio.gather(calm.start(), pressed.start())
        yield House(
            calm=calm,
            pressed=pressed,
            token=token,
            new_token=new_token,
            postgres=postgres,
            redis_url=redis_url,
        )
    finally:
        await asyncio.gather(calm.kill(), pressed.kill())


async def produce(client: httpx2.AsyncClient, told: Told, until: asyncio.Event, *, pause_s: float) -> None:
    """Push one message after the other, whatever the answers are."""
    while not until.is_set():
        message, started = secrets.token_hex(8), time.monotonic()
        answer = await client.post(
            "/api/v1/push", json={"items": [{"queue": told.queue, "payload": message}]}
        )
        told.note(message, answer.status_code, time.monotonic() - started)
        await asyncio.sleep(pause_s)


async def present(house: House, queue: str) -> list[str]:
    """Every message in the queue, once the operation queue is empty."""
    async with Database(house.postgres.url, timeout_s=10) as database:
        operations = OperationQueue(database)
        async with asyncio.timeout(60):
            while await operations.depth():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    broker = RedisBroker(RedisConnection(url=house.redis_url))
    found: list[str] = []
    try:
        while deliveries := await broker.dequeue(DEFAULT.queue(queue), consumer="c", limit=100):
            found += [json.loads(delivery.payload) for delivery in deliveries]
            await broker.ack([delivery.lease for delivery in deliveries])
    finally:
        await broker.aclose()
    return found


async def scene(house: House, *, hang_s: float, beside_s: float) -> None:
    """What is pushed while it hangs is compared with `beside_s` before and after."""
    told = {name: Told(name) for name in (CALM, PRESSED)}
    until = asyncio.Event()
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        for process, name in ((house.calm, CALM), (house.pressed, PRESSED)):
            client = await stack.enter_async_context(house.client(process))
            for _ in range(PRODUCERS):
                tasks.create_task(produce(client, told[name], until, pause_s=PAUSES_S[name]))
        await asyncio.sleep(2)
        before_s = time.monotonic()
        await asyncio.sleep(beside_s)
        hung_s = time.monotonic()
        with frozen_tree(house.postgres.pid):
            await asyncio.sleep(hang_s)
            new_s, stranger = await ask_with_new_token(house)
            again_s = time.monotonic()
        await asyncio.sleep(beside_s)
        after_s = time.monotonic()
        until.set()
    calm = told[CALM]
    normal = (calm.taken(before_s, hung_s) + calm.taken(again_s, after_s)) / (
        hung_s - before_s + after_s - again_s
    )
    during = calm.taken(hung_s, again_s) / (again_s - hung_s)
    for one in told.values():
        print(f"{one.queue}: {dict(Counter(one.statuses.values()))}, longest answer {one.longest_s:.2f} s")
    print(f"{normal:.0f} pushes/s before and after, {during:.0f} while it hung: {during / normal:.2f}")
    print(f"a new token meanwhile: {stranger} after {new_s:.2f} s")
    for one in told.values():
        found = Counter(await present(house, one.queue))
        assert set(found) == one.accepted
        assert max(found.values()) == 1
    assert during >= 0.8 * normal
    assert stranger == 503
    assert new_s < 2
    assert {201, 202} >= set(told[CALM].statuses.values())
    assert 503 in told[PRESSED].statuses.values()


async def ask_with_new_token(house: House) -> tuple[float, int]:
    started = time.monotonic()
    async with house.client(house.calm, house.new_token) as client:
        answer = await client.get("/api/v1/me")
    return time.monotonic() - started, answer.status_code


async def test_pushes_outlive_a_postgresql_that_hangs_for_a_while(
    tmp_path: Path, postgres: RunningServer, redis_url: str, clickhouse_url: str
) -> None:
    async with opened(tmp_path, postgres, redis_url, clickhouse_url) as house:
        await scene(house, hang_s=QUICK_S, beside_s=4)


@pytest.mark.fault
async def test_pushes_outlive_a_postgresql_that_hangs_for_half_a_minute(
    tmp_path: Path, postgres: RunningServer, redis_url: str, clickhouse_url: str
) -> None:
    async with opened(tmp_path, postgres, redis_url, clickhouse_url) as house:
        await scene(house, hang_s=30, beside_s=30)
