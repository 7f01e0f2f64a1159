"""`weir serve` as a process of its own, which can be killed and started again on its port."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from weir.embedded.ports import free_port


class ApiProcess:
    """One API process over given stores."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.port = free_port()
        self._folder = folder
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> Path:
        return self._folder / f"api-{self.port}.log"

    @property
    def ended(self) -> int | None:
        """The exit status; None while it runs."""
        return None if self._process is None else self._process.returncode

    async def spawn(self) -> None:
        """Start the process, and do not wait until it listens."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "weir.cli", "serve",
                "--data-dir", str(self._folder), "--port", str(self.port),
                env={**os.environ, "WEIR_API__LOG_LEVEL": "ERROR", **self._environment},
                stdout=log, stderr=log,
            )  # fmt: skip

    async def start(self) -> None:
        """Start it and wait until it listens."""
        await self.spawn()
        async with asyncio.timeout(120):
            while not await self.listens():
                assert self.ended is None, self.log.read_text()
                await asyncio.sleep(0.02)

    async def listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await self._process.wait()

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
