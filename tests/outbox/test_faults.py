"""Relays and the API as real processes that are killed: nothing is lost, doubled or made up."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from support.api_process import ApiProcess
from support.urls import with_database
from support.waiting import until
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.principals import Role
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tokens import NewToken, Tokens
from weir.model.names import EnvironmentRef, QueueRef
from weir.outbox import push
from weir.spec.ir import Ordering, QueueSpec

SECONDS = 90.0
RELAYS = 2
WRITERS = 3
_WAITING = "SELECT count(*) FROM weir_outbox.messages"
_QUEUED = "SELECT coalesce(sum(pending), 0) FROM weir.operation_lanes"


@pytest.mark.fault
async def test_killed_relays_and_a_killed_api_lose_and_double_nothing(
    shop_url: str,
    database_url: str,
    redis_url: str,
    warehouse_url: str,
    environment: EnvironmentRef,
    tmp_path: Path,
) -> None:
    redis_url = with_database(redis_url, "8")
    variables = {
        "WEIR_REDIS_URL": redis_url,
        "WEIR_POSTGRES_URL": database_url,
        "WEIR_CLICKHOUSE_URL": warehouse_url,
    }
    broker = RedisBroker(RedisConnection(url=redis_url))
    queue = environment.queue("receipts")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(broker.aclose)
        api = ApiProcess(tmp_path, variables)
        stack.push_async_callback(api.kill)
        await api.start()
        token = await _prepare(database_url, broker, queue)
        relays = [Relay(shop_url, api.url, token, tmp_path) for _ in range(RELAYS)]
        for relay in relays:
            stack.push_async_callback(relay.kill)
            await relay.start()
        end_s = time.monotonic() + SECONDS
        writers = [asyncio.create_task(asyncio.to_thread(_write, shop_url, n, end_s)) for n in range(WRITERS)]
        await _kill_until(end_s, relays, api)
        committed = set().union(*[await writer for writer in writers])
        await until(lambda: _is_zero(shop_url, _WAITING), within_s=120)
        await until(lambda: _is_zero(database_url, _QUEUED), within_s=60)
    found = await _take(redis_url, queue)
    counted = Counter((writer, number) for _, writer, number in found)
    assert (committed - set(counted), set(counted) - committed) == (set(), set())
    assert set(counted.values()) == {1}
    assert len(committed) > 1_000
    by_key: dict[tuple[str, int], list[int]] = defaultdict(list)
    for key, writer, number in found:
        by_key[key, writer].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


class Relay:
    """`weir outbox relay` as a process."""

    def __init__(self, database: str, url: str, token: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "weir.cli", "outbox", "relay", "--database", database]
        self._variables = {**os.environ, "WEIR_URL": url, "WEIR_TOKEN": token}
        self._log = folder / "relay.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, env=self._variables, stdout=log, stderr=log
            )

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


async def _prepare(database_url: str, broker: RedisBroker, queue: QueueRef) -> str:
    spec = QueueSpec(name=queue.queue, ordering=Ordering.PER_KEY)
    async with Database(database_url) as database:
        await QueueDefinitions(database).define(queue, spec)
        new = NewToken(
            name="relay",
            role=Role.WRITE,
            organization=queue.organization,
            project=queue.project,
            environment=queue.environment,
        )
        text, _ = await Tokens(database).create(new)
    await broker.define(queue, spec)
    return text


async def _kill_until(end_s: float, relays: list[Relay], api: ApiProcess) -> None:
    chance = random.Random(5)
    turn = 0
    while time.monotonic() < end_s:
        await asyncio.sleep(chance.uniform(1.0, 4.0))
        turn += 1
        if turn % 5 == 0:
            await api.kill()
            await api.start()
        relay = chance.choice(relays)
        await relay.kill()
        await relay.start()


def _write(url: str, writer: int, end_s: float) -> set[tuple[int, int]]:
    """Write until the end, a third of it in vain; what was committed."""
    chance = random.Random(writer)
    committed = set()
    number = 0
    with psycopg.connect(url) as connection:
        while time.monotonic() < end_s:
            number += 1
            key = f"k{chance.randint(0, 20)}"
            push(connection, "receipts", [key, writer, number], key=key)
            if chance.random() < 1 / 3:
                connection.rollback()
            else:
                connection.commit()
                committed.add((writer, number))
            time.sleep(0.002)
    return committed


async def _is_zero(url: str, query: LiteralString) -> bool:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        row = await (await connection.execute(query)).fetchone()
    return row == (0,)


async def _take(redis_url: str, queue: QueueRef) -> list[tuple[str, int, int]]:
    """Everything in the queue, in the order in which it is handed out."""
    broker = RedisBroker(RedisConnection(url=redis_url))
    found = []
    while batch := await broker.dequeue(queue, consumer="test", limit=1_000):
        found += [tuple(json.loads(one.payload)) for one in batch]
        await broker.ack([one.lease for one in batch])
    await broker.aclose()
    return found
