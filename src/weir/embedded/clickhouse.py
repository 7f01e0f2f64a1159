"""Runs ClickHouse as a child: the chDB engine in a process that speaks ClickHouse's HTTP interface (0002)."""

from __future__ import annotations

import asyncio
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from weir.embedded.child import ChildCommand
from weir.embedded.ports import HOST
from weir.embedded.server import make_private

WRITER = "weir"


class ClickHouseServer:
    """The engine behind HTTP on loopback, with a writer and a read-only user."""

    name = "clickhouse"

    def __init__(self, folder: Path, *, port: int, password: str) -> None:
        self.folder = folder
        self.port = port
        self._password = password

    @property
    def _scratch(self) -> Path:
        return self.folder / "tmp"

    @property
    def url(self) -> str:
        return f"http://{WRITER}:{self._password}@{HOST}:{self.port}/default"

    async def prepare(self) -> None:
        make_private(self.folder)
        # A killed engine leaves temporary files behind, and nothing else would remove them.
        shutil.rmtree(self._scratch, ignore_errors=True)
        make_private(self._scratch)

    def command(self) -> ChildCommand:
        arguments = ("--path", str(self.folder / "store"), "--port", str(self.port))
        return ChildCommand(
            argv=(sys.executable, "-m", "weir.embedded.chdb", *arguments),
            cwd=self.folder,
            # Not as an argument, which every user of the machine can read.
            env={"WEIR_CHDB_PASSWORD": self._password, "TMPDIR": str(self._scratch)},
        )

    async def healthy(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection(HOST, self.port)
        except OSError:
            return False
        try:
            writer.write(b"GET /ping HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n")
            return b" 200 " in await reader.readline()
        except OSError:
            return False
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def explain(self, lines: list[str]) -> str | None:
        return None

    def mend(self) -> str | None:
        return None
