"""A real process among hostile clients: its memory stays flat, and others are answered as always.

The figures are printed; `-s` shows them. Short variants of all of this run in the ordinary tests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from support.api_process import ApiProcess
from support.servers import RunningServer, redis_server, start_server
from weir.control.database import Database
from weir.control.principals import Role
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tokens import NewToken, Tokens
from weir.model.names import EnvironmentRef
from weir.spec.ir import QueueSpec

from .hostile import (
    QUEUE,
    T,
    Told,
    attack_endlessly,
    crowd,
    flood,
    head,
    memory_watched,
    open_streams,
    push_body,
    push_steadily,
)

pytestmark = pytest.mark.fault

SECONDS = 60.0
HALF = SECONDS / 2
QUEUES = [f"queue {number}" for number in range(1_000)]
LINE = b"x-filler: " + b"y" * 200 + b"\r\n"
GROWTH_MIB = 24
"""What memory may vary by while the process is busy: buffers of the allocator, not what was sent."""


@dataclass(frozen=True, kw_only=True)
class World:
    """A process and two tenants of it."""

    api: ApiProcess
    quiet: str
    loud: str


async def make_tenant(database: Database, name: str, queues: list[str]) -> str:
    scope = EnvironmentRef(organization=f"{name}-{uuid4().hex[:8]}", project="p", environment="e")
    definitions = QueueDefinitions(database)
    for queue in queues:
        await definitions.define(scope.queue(queue), QueueSpec(name=queue))
    token, _ = await Tokens(database).create(
        NewToken(name=name, role=Role.WRITE, organization=scope.organization, project="p", environment="e")
    )
    return token


@asynccontextmanager
async def running(
    redis_url: str, database_url: str, warehouse_url: str, folder: Path
) -> AsyncIterator[World]:
    async with Database(database_url) as database:
        quiet = await make_tenant(database, "quiet", [QUEUE])
        loud = await make_tenant(database, "loud", [QUEUE, *QUEUES])
    stores = {
        "WEIR_REDIS_URL": redis_url,
        "WEIR_POSTGRES_URL": database_url,
        "WEIR_CLICKHOUSE_URL": warehouse_url,
    }
    api = ApiProcess(folder, stores)
    try:
        await api.start()
        world = World(api=api, quiet=quiet, loud=loud)
        await warm(world)
        yield world
    finally:
        await api.kill()


async def warm(world: World) -> None:
    """Push for a moment, so that what is made once is made."""
    for token in (world.quiet, world.loud):
        told = await push_steadily(world.api.port, token, time.monotonic() + 2)
        assert set(told.statuses) == {201}, told


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RunningServer]:
    """A Redis of the test's own: it belongs to the test's database."""
    server = start_server(lambda port: redis_server(tmp_path / "redis", port=port), log_folder=tmp_path)
    yield server
    server.stop()


@pytest.fixture
async def world(
    own_redis: RunningServer, database_url: str, warehouse_url: str, tmp_path: Path
) -> AsyncIterator[World]:
    async with running(own_redis.url, database_url, warehouse_url, tmp_path) as world:
        yield world


def show(text: str) -> None:
    print(f"\nFIGURE {text}", flush=True)


def endless(world: World, *, large: bool) -> dict[str, list[tuple[bytes, bytes]]]:
    """By kind: how requests begin and what they go on with, on all sorts of routes."""
    routes = [
        ("POST", "/api/v1/push", world.loud),
        ("POST", "/api/v1/push", None),
        ("PUT", "/api/v1/spec", world.loud),
        ("PUT", "/api/v1/spec", None),
        ("POST", "/hook/nosuch", None),
        ("GET", "/livez", None),
    ]
    heads = [head(method, path, token=token, length=None) for method, path, token in routes]
    chunk = b"2\r\n{}\r\n"
    kinds = {
        "headers": [(one[:-2], LINE * 20) for one in heads],
        "one header": [(one[:-2] + b"x: ", b"y" * 4_000) for one in heads],
        "trailers": [(one + chunk + b"0\r\n", LINE * 20) for one in heads],
        "one trailer": [(one + chunk + b"0\r\nx: ", b"y" * 4_000) for one in heads],
        "chunk extensions": [(one + chunk, b"1;" + b"e" * 4_000 + b"\r\n \r\n") for one in heads],
        "one extension": [(one + b"2;", b"e" * 4_000) for one in heads],
    }
    if large:
        return kinds
    return {kind: [(start, piece[:1]) for start, piece in requests] for kind, requests in kinds.items()}


@pytest.mark.parametrize(
    ("pause_s", "wait_s"), [(0.0, 0.0), (0.0, 0.5), (0.2, 0.0)], ids=["fast", "after the answer", "slow"]
)
async def test_memory_is_flat_under_a_minute_of_endless_requests(
    world: World, pause_s: float, wait_s: float
) -> None:
    resident: list[float] = []
    port = world.api.port
    with memory_watched(world.api, resident):
        async with asyncio.TaskGroup() as tasks:
            attacks = {
                kind: tasks.create_task(
                    crowd(attack_endlessly, port, requests, len(requests), SECONDS, pause_s, wait_s)
                )
                for kind, requests in endless(world, large=pause_s == 0).items()
            }
            pushing = tasks.create_task(
                push_steadily(port, world.quiet, time.monotonic() + SECONDS, every_s=0.2)
            )
    for kind, attack in attacks.items():
        show(f"endless {kind}, {wait_s:g} s later, every {pause_s:g} s: {attack.result()}")
        # Ten seconds for the headers, ten for the body, two to linger, and a busy machine.
        assert attack.result().longest_s < 40
        assert attack.result().opened > 6
    settled = resident[10:]
    figures = f"first {settled[0]:.0f}, most {max(settled):.0f}, last {settled[-1]:.0f}"
    show(f"resident MiB over {SECONDS:g} s: {figures}")
    show(f"pushes meanwhile: {pushing.result()}")
    assert max(settled) - settled[0] < GROWTH_MIB
    assert set(pushing.result().statuses) <= {201, 202}


async def test_two_thousand_unfinished_requests_do_not_hinder_anyone(world: World) -> None:
    some = b"x" * 1_000
    starts = [
        head("POST", "/hook/nosuch", token=None, length=100_000) + some,
        head("PUT", "/api/v1/spec", token=None, length=100_000) + some,
        head("POST", "/api/v1/push", token=world.loud, length=100_000) + some,
        head("POST", "/hook/nosuch", token=None, length=100_000)[:-2] + b"x-slow: ",
    ]
    requests = [(start, b"x") for start in starts]
    attacking = crowd(attack_endlessly, world.api.port, requests, 2_000, HALF, 1.0)
    attack, told = await meanwhile(world, attacking)
    show(f"2,000 unfinished requests for {HALF:g} s: {attack}")
    check_pushes(told)


async def test_two_thousand_streams_of_one_token_do_not_hinder_anyone(world: World) -> None:
    attack, told = await meanwhile(world, crowd(open_streams, world.api.port, world.loud, 2_000, HALF))
    show(f"2,000 clients that open streams for {HALF:g} s: {attack}")
    check_pushes(told)


async def meanwhile(world: World, attacking: Coroutine[Any, Any, T]) -> tuple[T, dict[str, Told]]:
    """Push for a quiet tenant and for the one whose token is misused, until the attack is over."""
    until_s = time.monotonic() + HALF
    async with asyncio.TaskGroup() as tasks:
        attack = tasks.create_task(attacking)
        pushing = {
            name: tasks.create_task(push_steadily(world.api.port, token, until_s, every_s=0.05))
            for name, token in (("a quiet tenant", world.quiet), ("the attacker's tenant", world.loud))
        }
    return attack.result(), {name: task.result() for name, task in pushing.items()}


def check_pushes(told: dict[str, Told]) -> None:
    for name, one in told.items():
        show(f"pushes of {name} meanwhile: {one}")
        assert one.total > 20
    assert set(told["a quiet tenant"].statuses) <= {201, 202}
    assert told["the attacker's tenant"].share(429) <= 0.1


@pytest.mark.parametrize("clients", [64, 8], ids=["small", "1,000 queues"])
async def test_a_quiet_tenant_keeps_its_share_while_another_floods(world: World, clients: int) -> None:
    body = push_body(QUEUE) if clients == 64 else push_body(*QUEUES)
    port, until_s = world.api.port, time.monotonic() + HALF
    async with asyncio.TaskGroup() as tasks:
        loud = tasks.create_task(crowd(flood, port, world.loud, clients, HALF, body))
        quiet = tasks.create_task(push_steadily(port, world.quiet, until_s, every_s=0.1))
    told = quiet.result()
    show(f"one tenant floods with {clients} connections for {HALF:g} s: {loud.result()}")
    show(f"a quiet tenant meanwhile: {told}; share of 429: {100 * told.share(429):.1f} %")
    assert told.total > 20
    assert told.share(429) <= 0.02
    assert set(told.statuses) <= {201, 202, 429}
