"""The guide on backups, followed on servers of one's own: nothing is lost, and the metrics agree."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev import ROOT
from docs.conftest import free_ports, opened_reader
from support.pages import CodeBlock, code_blocks
from support.processes import processes_using
from support.reader import Reader
from support.servers import RunningServer, redis_program
from support.waiting import wait_until
from weir.embedded.child import ChildCommand
from weir.embedded.clickhouse import ClickHouseServer
from weir.embedded.postgres import PostgresServer, wheel_binaries
from weir.embedded.redis import RedisServer
from weir.embedded.server import EmbeddedServer

pytestmark = pytest.mark.fault
GUIDE = ROOT / "docs" / "how-to" / "backup.md"


def in_terminal(number: int, command: str) -> CodeBlock:
    return CodeBlock(page=GUIDE, line=0, language="sh", title=f"Terminal {number}", text=f"{command}\n")


def shown(text: str) -> CodeBlock:
    return CodeBlock(page=GUIDE, line=0, language="text", title="", text=f"{text}\n")


START = [
    in_terminal(1, "weir serve"), shown("serving…"),
    in_terminal(2, "weir pipeline run"), shown("the pipeline runs"),
]  # fmt: skip
TOOLS = (Path(sys.executable).parent, wheel_binaries())
SNAPSHOT = "redis.rdb"
# On a busy machine Spark takes longer than the 30 s that an audit waits unless told.
LANDING_S = 75
PUSHED = "SELECT sum(enqueued) FROM weir.queue_metrics_1h FORMAT TSV"
MAKE_TENANT = """
export WEIR_TOKEN=$(weir token bootstrap)
export WEIR_TOKEN=$(weir token create first -o acme -p shop -e production --role admin)
"""
PUSH = "\n".join(f"weir queue push orders '{{\"order\": {number}}}'" for number in range(5))
DIE = """
import os
from weir import Weir
with Weir(os.environ["WEIR_URL"], token=os.environ["WEIR_TOKEN"]) as weir:
    (message,) = weir.pop("orders")
    weir.nack(message, error="it is poisoned", dead_letter=True)
"""
FINISH = """
import os
from weir import Weir
with Weir(os.environ["WEIR_URL"], token=os.environ["WEIR_TOKEN"]) as weir:
    (message,) = weir.pop("orders")
    weir.ack(message)
"""
DISK = """
<clickhouse>
  <backups><allowed_disk>backups</allowed_disk></backups>
  <storage_configuration><disks><backups><type>local</type><path>{path}/</path></backups></disks></storage_configuration>
</clickhouse>
"""
# The engine takes its configuration from the address that it opens.
ENGINE = """
import chdb, sys
opened, config = chdb.connect, sys.argv.pop(1)
chdb.connect = lambda path: opened(f"{path}?config-file={config}")
from weir.embedded.chdb.__main__ import main
main()
"""
# The client's program is not in a wheel. This one sends the words after `--query` as it does.
CLIENT = """#!/bin/sh
exec curl --silent --show-error --fail-with-body --data-binary "$2" '{url}'
"""


class SnapshotRedis(RedisServer):
    """A Redis that starts from a snapshot, as the guide says: without its append-only file."""

    async def prepare(self) -> None:
        await super().prepare()
        # Not before: an embedded server refuses a folder that it would open as if it were empty.
        shutil.copy(self.folder.parent / SNAPSHOT, self.folder / "dump.rdb")

    def command(self) -> ChildCommand:
        plain = super().command()
        return ChildCommand(argv=(*plain.argv, "--appendonly", "no"), cwd=plain.cwd)


class ClickHouseWithBackups(ClickHouseServer):
    """An engine whose configuration has a disk for backups."""

    def command(self) -> ChildCommand:
        plain = super().command()
        config = self.folder.parent / "disk.xml"
        config.write_text(DISK.format(path=self.folder.parent / "clickhouse-backups"))
        argv = (sys.executable, "-c", ENGINE, str(config), *plain.argv[3:])
        return ChildCommand(argv=argv, cwd=plain.cwd, env=plain.env)


class OwnServers:
    """Three servers in a folder, at addresses that stay when their data is lost."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        # PostgreSQL runs as another account and has to pass through.
        folder.chmod(0o711)
        self.folder = folder
        self._password = secrets.token_hex(12)
        self._ports = free_ports(3)
        self.running: dict[str, RunningServer] = {}

    @property
    def redis(self) -> Path:
        return self.folder / "redis"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that name the servers."""
        host = f"{self._password}@127.0.0.1"
        return {
            "WEIR_REDIS_URL": f"redis://default:{host}:{self._ports[0]}/0",
            "WEIR_POSTGRES_URL": f"postgresql://weir:{host}:{self._ports[1]}/weir",
            "WEIR_CLICKHOUSE_URL": f"http://weir:{host}:{self._ports[2]}/weir",
            "WEIR_PIPELINE__ARCHIVE": str(self.folder / "archive"),
            "WEIR_PIPELINE__CHECKPOINT": str(self.folder / "checkpoint"),
        }

    @property
    def clickhouse_root(self) -> str:
        return f"http://weir:{self._password}@127.0.0.1:{self._ports[2]}/"

    def start(self) -> None:
        self.start_redis()
        self.start_others()

    def start_redis(self, *, from_snapshot: bool = False) -> None:
        make = SnapshotRedis if from_snapshot else RedisServer
        self.running["redis"] = self._started(
            make(self.redis, port=self._ports[0], password=self._password, program=redis_program())
        )

    def start_others(self) -> None:
        postgres = PostgresServer(self.folder / "postgres", port=self._ports[1], password=self._password)
        clickhouse = ClickHouseWithBackups(
            self.folder / "clickhouse", port=self._ports[2], password=self._password
        )
        self.running["postgres"] = self._started(postgres)
        self.running["clickhouse"] = self._started(clickhouse)

    def stop(self) -> None:
        while self.running:
            self.running.popitem()[1].stop()

    def lose_everything(self) -> None:
        """Stop all three, and leave nothing of their data, the archive and the checkpoint."""
        self.stop()
        for name in ("redis", "postgres", "clickhouse", "archive", "checkpoint"):
            shutil.rmtree(self.folder / name)

    def _started(self, server: EmbeddedServer) -> RunningServer:
        running = RunningServer(server, log_folder=self.folder)
        running.start()
        return running


@pytest.fixture
def servers(quick_path: Path) -> Iterator[OwnServers]:
    made = OwnServers(quick_path / "servers")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def own_reader(quick_path: Path, servers: OwnServers) -> Iterator[Reader]:
    """Has the clients of the servers on the PATH, and their addresses in variables."""
    with opened_reader(quick_path) as found:
        client = quick_path / "bin" / "clickhouse-client"
        client.write_text(CLIENT.format(url=servers.clickhouse_root))
        client.chmod(0o755)
        path = (found.environment["PATH"].partition(os.pathsep)[0], *TOOLS, os.environ["PATH"])
        found.environment |= {
            **servers.environment,
            "PATH": os.pathsep.join(map(str, path)),
            "WEIR_URL": f"http://127.0.0.1:{found.port}",
        }
        yield found
        found.close()
        # Spark's Java ends a moment after the pipeline.
        wait_until(lambda: processes_using(str(found.folder)) == [], what="the end of Java")


def typed() -> list[str]:
    """The commands of the guide for servers of one's own, block by block."""
    return [block.text for block in code_blocks(GUIDE) if "test_backup" in block.not_run]


def letters(reader: Reader) -> list[str]:
    return [one["error"] for one in json.loads(reader.type("weir dlq list orders --json"))]


def waiting(reader: Reader) -> int:
    return int(json.loads(reader.type("weir queue show orders --json"))["depth"])


def audited(reader: Reader) -> dict[str, Any]:
    """What an audit finds when everything has landed."""
    report: dict[str, Any] = json.loads(
        reader.type(f"weir pipeline audit --json --wait-s {LANDING_S} || true")
    )
    return report


def test_servers_of_ones_own_come_back_with_every_message_dead_letter_and_metric(
    own_reader: Reader, servers: OwnServers
) -> None:
    backup, restore, switch_on, is_written, look = typed()
    reader = own_reader
    redis_first, _, others_next = backup.partition(".rdb\n")
    reader.type('clickhouse-client --query "CREATE DATABASE weir"\nweir migrate')
    reader.follow_blocks(START)
    reader.type(MAKE_TENANT)
    reader.type(f"weir queue create orders\n{PUSH}\npython -c '{FINISH}'")
    before = audited(reader)
    assert (before["drift"], before["complete"]) == (0, True), before
    reader.type(f"{redis_first}.rdb")
    reader.type(f"python -c '{DIE}'")
    wait_until(lambda: letters(reader) == ["it is poisoned"], what="the dead letter")
    assert audited(reader)["drift"] == 0
    reader.type(others_next)
    reader.close()

    servers.lose_everything()
    shutil.copy(reader.folder / "backups" / SNAPSHOT, servers.folder / SNAPSHOT)
    servers.start_others()
    reader.type(restore)
    assert reader.type(f'clickhouse-client --query "{PUSHED}"').strip() == "5"
    servers.start_redis(from_snapshot=True)
    reader.type(switch_on)
    wait_until(lambda: ":1" not in reader.type(is_written), what="the append-only file")
    servers.running.pop("redis").stop()
    servers.start_redis()
    reader.type(look)

    reader.follow_blocks(START)
    # The message that died between the backups is in both: it waits, and it is a dead letter.
    assert (letters(reader), waiting(reader)) == (["it is poisoned"], 4)
    after = audited(reader)
    assert (after["drift"], after["complete"]) == (0, True), after
