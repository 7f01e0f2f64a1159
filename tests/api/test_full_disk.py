"""PostgreSQL's disk fills up: the control plane says 503, messages go on, and room brings it back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from support.disks import as_seen_by, on_a_small_disk
from weir.control.database import Database
from weir.control.migrate import migrate_postgres
from weir.control.sql import NamedQuery
from weir.embedded.ports import free_port
from weir.errors import ControlUnavailable

from .harness import PUSH, Tenant

_PROGRAM = Path(__file__).with_name("supervised_postgres.py")
LARGE = NamedQuery(
    name="large",
    sentence="More rows than the disk has room for.",
    text="CREATE TEMPORARY TABLE large AS "
    "SELECT repeat(md5(n::text), 500) AS text FROM generate_series(1, 20000) AS n",
)
pytestmark = pytest.mark.fault


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The URL of a supervised PostgreSQL on a small disk of its own, and the way to that disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = on_a_small_disk(folder, size="160m")
    assert mounting, "nobody may mount here; run this test as root or where `unshare --user` is allowed"
    command = [*mounting, sys.executable, _PROGRAM, folder, str(free_port())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        yield program.stdout.readline().strip(), as_seen_by(program.pid, folder)
        program.communicate()


@pytest.fixture
async def small(postgres: tuple[str, Path]) -> AsyncIterator[Database]:
    database = Database(postgres[0], max_size=4, timeout_s=0.5)
    await database.open(wait_s=10)
    await migrate_postgres(database)
    yield database
    await database.aclose()


async def test_a_full_disk_under_postgres_stops_control_writes_and_nothing_else(
    shaky: Tenant, small: Database, postgres: tuple[str, Path]
) -> None:
    url, disk = postgres
    filler = disk / "filler"
    await asyncio.to_thread(_fill, filler)
    with pytest.raises(ControlUnavailable, match="space left"):
        await small.execute(LARGE)
    await asyncio.to_thread(_use_up_the_log, url)
    statuses = set()
    for number in range(8):
        made = await shaky.client.post("/api/v1/tokens", json={"name": f"t{number}", "role": "read"})
        statuses.add(made.status_code)
        assert (await shaky.client.post("/api/v1/push", json=PUSH)).status_code == 201
    assert 503 in statuses
    assert statuses <= {201, 503}
    filler.unlink()
    await _works_again(shaky)


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


async def _works_again(tenant: Tenant) -> None:
    for _ in range(400):
        made = await tenant.client.post("/api/v1/tokens", json={"name": "after", "role": "read"})
        if made.status_code == 201:
            return
        assert made.status_code == 503, made.text
        await asyncio.sleep(0.05)
    raise AssertionError("there is room again and nobody noticed")
