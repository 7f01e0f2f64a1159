"""Two real API processes, a real Redis that is frozen and killed, processors that are killed: order holds."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from support.api_process import ApiProcess
from support.processes import cont, stop
from support.servers import RunningServer, redis_server, start_server
from support.waiting import until
from weir import ApiError, AsyncWeir, OutgoingMessage, Unreachable
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tokens import Tokens
from weir.model.names import QueueRef
from weir.operations.queue import OperationQueue
from weir.serve.bootstrap import ADMIN, DEFAULT, keep_token
from weir.spec.ir import Ordering, QueueSpec

QUEUE = "orders"
KEYS = ("a", "b", "c")
SHARDS = 4


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RunningServer]:
    """A Redis of the test's own: it is going to be hurt."""
    server = start_server(lambda port: redis_server(tmp_path / "redis", port=port), log_folder=tmp_path)
    yield server
    server.stop()


@asynccontextmanager
async def two_processes(
    own_redis: RunningServer, database_url: str, clickhouse_url: str, folder: Path
) -> AsyncIterator[tuple[list[ApiProcess], str, QueueRef]]:
    async with Database(database_url) as database:
        queue = DEFAULT.queue(QUEUE)
        await QueueDefinitions(database).define(queue, QueueSpec(name=QUEUE, ordering=Ordering.PER_KEY))
        token = await keep_token(Tokens(database), folder / "admin.token", ADMIN)
    environment = {
        "WEIR_REDIS_URL": own_redis.url,
        "WEIR_POSTGRES_URL": database_url,
        "WEIR_CLICKHOUSE_URL": clickhouse_url,
        "WEIR_SHARDS": str(SHARDS),
        "WEIR_API__LOG_LEVEL": "WARNING",
    }
    apis = [ApiProcess(folder, environment), ApiProcess(folder, environment)]
    try:
        await asyncio.gather(*(api.start() for api in apis))
        yield apis, token, queue
    finally:
        for api in apis:
            await api.kill()


class Producer:
    """Sends numbered messages one request at a time, to either process, and notes what was accepted.

    A busy machine may refuse a message. Nothing is promised for it, and it must not appear.
    """

    def __init__(self, name: str, apis: list[ApiProcess], token: str, redis_url: str | None = None) -> None:
        self.accepted: dict[str, list[str]] = {key: [] for key in KEYS}
        self.statuses: set[str] = set()
        self._pushed_directly = asyncio.Event()
        self._name = name
        self._urls = [api.url for api in apis]
        self._token = token
        self._direct = [] if redis_url is None else [redis_url]
        self._sent = 0

    async def run(self, until: asyncio.Event) -> None:
        clients = [
            AsyncWeir(
                [*self._direct, url, *self._urls],
                token=self._token,
                timeout=8,
                retry_attempts=60,
                retry_delay=0.05,
            )
            for url in self._urls
        ]
        try:
            while not until.is_set():
                await self._push(random.choice(clients))
        finally:
            for client in clients:
                await client.aclose()

    async def push_directly(self) -> None:
        """Wait until a push is not queued, however long it takes to get over what happened before."""
        self._pushed_directly.clear()
        async with asyncio.timeout(60):
            await self._pushed_directly.wait()

    async def _push(self, client: AsyncWeir) -> None:
        messages = []
        for key in random.sample(KEYS, random.randint(1, len(KEYS))):
            self._sent += 1
            messages.append(
                OutgoingMessage(
                    queue=QUEUE, key=f"{self._name}{key}", payload=f"{self._name}{key}{self._sent}"
                )
            )
        try:
            results = await client.push_many(messages)
        except (ApiError, Unreachable) as error:
            raise AssertionError(f"a push was given up: {error}") from error
        for message, result in zip(messages, results, strict=True):
            self.statuses.add(result.status)
            if result.status == "accepted":
                self._pushed_directly.set()
            if result.accepted:
                self.accepted[(message.key or "")[-1]].append(message.payload)
            else:
                assert (result.problem or {})["code"] == "overloaded", result


async def consumed(broker: RedisBroker, queue: QueueRef) -> dict[str, list[str]]:
    seen: dict[str, list[str]] = {}
    while deliveries := await broker.dequeue(queue, consumer="c", limit=100):
        for delivery in deliveries:
            seen.setdefault(delivery.key or "", []).append(delivery.payload.decode().strip('"'))
        await broker.ack([delivery.lease for delivery in deliveries])
    return seen


async def check(
    producers: list[Producer], own_redis: RunningServer, database_url: str, queue: QueueRef
) -> None:
    """Drain, then compare: in order, none lost, none twice."""
    async with Database(database_url) as database:
        operations = OperationQueue(database)

        async def empty() -> bool:
            return await operations.depth() == 0

        await until(empty, within_s=60)
    broker = RedisBroker(RedisConnection(url=own_redis.url), shards=SHARDS)
    try:
        seen = await consumed(broker, queue)
    finally:
        await broker.aclose()
    for number, producer in enumerate(producers):
        for key in KEYS:
            assert faults_in(seen.get(f"{number}{key}", []), producer.accepted[key]) == {}


def faults_in(seen: list[str], accepted: list[str]) -> dict[str, list[str]]:
    """What is wrong with the messages of one key, by kind; empty if nothing is."""
    times, places = Counter(seen), {payload: place for place, payload in enumerate(accepted)}
    known = [payload for payload in seen if payload in places]
    found = {
        "lost": [payload for payload in accepted if not times[payload]],
        "doubled": [payload for payload in accepted if times[payload] > 1],
        "never accepted": [payload for payload in seen if payload not in places],
        "overtaken by": [
            f"{late} by {early}" for early, late in pairwise(known) if places[late] < places[early]
        ],
    }
    return {kind: payloads for kind, payloads in found.items() if payloads}


async def scene(
    own_redis: RunningServer,
    database_url: str,
    clickhouse_url: str,
    folder: Path,
    *,
    faults: list[str],
    direct: bool,
) -> set[str]:
    async with two_processes(own_redis, database_url, clickhouse_url, folder) as (apis, token, queue):
        # One of them keeps to HTTP in any case.
        redis_urls = [own_redis.url, own_redis.url, None] if direct else [None] * 3
        producers = [Producer(str(n), apis, token, url) for n, url in enumerate(redis_urls)]
        until = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for producer in producers:
                tasks.create_task(producer.run(until))
            for fault in [None, *faults]:
                await inflict(fault, apis, own_redis)
                await asyncio.gather(*(producer.push_directly() for producer in producers))
            until.set()
        await check(producers, own_redis, database_url, queue)
    assert sum(len(found) for producer in producers for found in producer.accepted.values()) > 50
    return set().union(*(producer.statuses for producer in producers))


async def inflict(fault: str | None, apis: list[ApiProcess], own_redis: RunningServer) -> None:
    if fault is None:
        return
    if fault == "stall":
        stop(own_redis.pid)
        await asyncio.sleep(4)
        cont(own_redis.pid)
    elif fault == "kill-redis":
        await asyncio.to_thread(own_redis.kill)
        await asyncio.sleep(3)
        await asyncio.to_thread(own_redis.start)
    else:
        await apis[0].kill()
        await asyncio.sleep(1)
        await apis[0].start()


@pytest.mark.fault
@pytest.mark.parametrize("direct", [False, True])
async def test_order_holds_while_redis_is_frozen(
    own_redis: RunningServer, database_url: str, clickhouse_url: str, tmp_path: Path, direct: bool
) -> None:
    stores = (own_redis, database_url, clickhouse_url)
    statuses = await scene(*stores, tmp_path, faults=["stall"], direct=direct)
    assert {"accepted", "queued"} <= statuses


@pytest.mark.fault
@pytest.mark.parametrize("direct", [False, True])
async def test_order_holds_while_redis_and_processes_are_killed(
    own_redis: RunningServer, database_url: str, clickhouse_url: str, tmp_path: Path, direct: bool
) -> None:
    stores = (own_redis, database_url, clickhouse_url)
    faults = ["kill-redis", "kill-process", "stall", "kill-redis", "kill-process"]
    statuses = await scene(*stores, tmp_path, faults=faults, direct=direct)
    assert {"accepted", "queued"} <= statuses
