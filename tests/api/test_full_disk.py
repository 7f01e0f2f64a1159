"""PostgreSQL's disk fills up: the control plane says 503, messages go on, and room brings it back."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest

from weir.api.app import create_app
from weir.api.direct import DirectPusher, DirectSettler
from weir.api.services import Services
from weir.broker.broker import Broker
from weir.control.authentication import CachedAuthenticator
from weir.control.database import Database
from weir.control.migrate import migrate_postgres
from weir.control.queues import QueueDefinitions
from weir.control.sql import Query
from weir.control.tenants import Tenants
from weir.control.tokens import Tokens
from weir.embedded.postgres import PostgresServer, Tuning
from weir.errors import ControlUnavailable
from weir.testing.servers import RunningServer, start_server

from .harness import Tenant, define, make_tenant

PUSH = {"items": [{"queue": "q", "payload": 1}]}
LARGE = Query(
    name="large",
    sentence="More rows than the disk has room for.",
    text="CREATE TEMPORARY TABLE large AS "
    "SELECT repeat(md5(n::text), 500) AS text FROM generate_series(1, 20000) AS n",
)
pytestmark = pytest.mark.fault


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m,mode=755", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def postgres(disk: Path, tmp_path: Path) -> Iterator[RunningServer]:
    tuning = Tuning(shared_buffers="16MB", max_connections=30, fsync=False)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o011)
    server = start_server(
        lambda port: PostgresServer(disk / "postgres", port=port, password="x", tuning=tuning),
        log_folder=tmp_path,
    )
    yield server
    server.stop()


@pytest.fixture
async def small(postgres: RunningServer) -> AsyncIterator[Database]:
    database = Database(postgres.url, max_size=4, timeout_s=0.5)
    await database.open(wait_s=10)
    await migrate_postgres(database)
    yield database
    await database.aclose()


@pytest.fixture
async def tenant(small: Database, broker: Broker) -> AsyncIterator[Tenant]:
    tokens = Tokens(small)
    services = Services(
        broker=broker,
        authenticator=CachedAuthenticator(tokens, fresh_s=0.01),
        pusher=DirectPusher(broker),
        settler=DirectSettler(broker),
        tokens=tokens,
        tenants=Tenants(small),
        definitions=QueueDefinitions(small),
    )
    async with AsyncExitStack() as stack:
        tenant = await make_tenant(stack, create_app(services), services)
        await define(services, tenant.environment, "q")
        assert (await tenant.client.post("/api/v1/push", json=PUSH)).status_code == 201
        yield tenant


async def test_a_full_disk_under_postgres_stops_control_writes_and_nothing_else(
    tenant: Tenant, small: Database, disk: Path, postgres: RunningServer
) -> None:
    filler = disk / "filler"
    await asyncio.to_thread(_fill, filler)
    with pytest.raises(ControlUnavailable, match="space left"):
        await small.execute(LARGE)
    await asyncio.to_thread(_use_up_the_log, postgres.url)
    statuses = set()
    for number in range(8):
        made = await tenant.client.post("/api/v1/tokens", json={"name": f"t{number}", "role": "read"})
        statuses.add(made.status_code)
        assert (await tenant.client.post("/api/v1/push", json=PUSH)).status_code == 201
    assert 503 in statuses
    assert statuses <= {201, 503}
    filler.unlink()
    await _works_again(tenant, postgres)


def _fill(path: Path) -> None:
    """Leave no byte free."""
    with path.open("wb", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2


def _use_up_the_log(url: str) -> None:
    """Write until the preallocated part of the write-ahead log is full too, which ends the server."""
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            for _ in range(1_000):
                connection.execute("SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000))")
    except psycopg.Error:
        return
    raise AssertionError("the disk is not full")


async def _works_again(tenant: Tenant, postgres: RunningServer) -> None:
    """The supervisor that would start a dead server again is the test."""
    child = postgres.child
    if child is not None and child.status() is not None:
        await asyncio.to_thread(postgres.start)
    for _ in range(400):
        made = await tenant.client.post("/api/v1/tokens", json={"name": "after", "role": "read"})
        if made.status_code == 201:
            return
        assert made.status_code == 503, made.text
        await asyncio.sleep(0.05)
    raise AssertionError("there is room again and nobody noticed")
