"""PostgreSQL goes away, hangs or is busy: the hot path goes on, the control plane says 503 in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import psycopg
import pytest

from support.tcp_proxy import TcpProxy
from weir.control.database import Database
from weir.serve.build import CONTROL_WAIT_S

from .harness import PUSH, Tenant


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[TcpProxy]:
    async with TcpProxy.to(database_url) as proxy:
        yield proxy


@pytest.fixture
async def small(proxy: TcpProxy) -> AsyncIterator[Database]:
    """Two connections to PostgreSQL, through the proxy."""
    database = Database(proxy.url, min_size=2, max_size=2, timeout_s=CONTROL_WAIT_S)
    await database.open(wait_s=10)
    yield database
    proxy.heal()
    await database.aclose()


async def test_a_cut_connection_is_replaced_without_a_restart(shaky: Tenant, proxy: TcpProxy) -> None:
    proxy.cut()
    proxy.heal()
    async with asyncio.timeout(10):
        # The pool pauses when it finds broken connections, for longer than a request waits for one.
        while (answer := await shaky.client.get("/api/v1/tokens")).status_code != 200:
            assert answer.json()["code"] == "control_unavailable"


async def test_terminated_backends_are_replaced_without_a_restart(shaky: Tenant, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert ended is not None
    assert ended[0] >= 2
    for _ in range(3):
        assert (await shaky.client.get("/api/v1/tokens")).status_code == 200


async def test_without_postgres_messages_flow_and_the_rest_is_503(shaky: Tenant, proxy: TcpProxy) -> None:
    proxy.refuse()
    proxy.cut()
    pushed = await shaky.client.post("/api/v1/push", json=PUSH)
    assert pushed.status_code == 201, pushed.text
    started = time.monotonic()
    answer = await shaky.client.get("/api/v1/tokens")
    assert (answer.status_code, answer.json()["code"]) == (503, "control_unavailable")
    assert time.monotonic() - started < 2
    assert int(answer.headers["retry-after"]) >= 1
    again = await shaky.client.post("/api/v1/push", json=PUSH)
    assert again.status_code == 201
    proxy.heal()
    for _ in range(400):
        if (await shaky.client.get("/api/v1/tokens")).status_code == 200:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("PostgreSQL is back and nobody noticed")


async def test_an_exhausted_pool_is_503_in_time_and_spares_the_hot_path(
    shaky: Tenant, small: Database
) -> None:
    async with small.connection(), small.connection():
        started = time.monotonic()
        answers = await asyncio.gather(*(shaky.client.get("/api/v1/tokens") for _ in range(50)))
        assert time.monotonic() - started < 2
        for answer in answers:
            assert (answer.status_code, answer.json()["code"]) == (503, "control_unavailable")
        assert (await shaky.client.post("/api/v1/push", json=PUSH)).status_code == 201
    assert (await shaky.client.get("/api/v1/tokens")).status_code == 200
