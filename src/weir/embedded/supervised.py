"""Keeps one server alive: starts it, watches it, and restarts it with a growing pause when it dies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

from weir.embedded.child import Child
from weir.embedded.server import EmbeddedServer
from weir.errors import Misconfigured
from weir.model.backoff import Backoff

_BACKOFF = Backoff(first_s=0.1, longest_s=5.0)
_STEADY_AFTER_S = 1.0
"""After a server ran this long, earlier failures no longer count."""
# Redis reads its whole file before it answers, and PostgreSQL may have much to recover.
_START_PATIENCE_S = 300.0
_POLL_S = 0.03
_ANSWER_S = 5.0
# A stack trace may stand between the error and the end of the log.
_LOOK_BACK_LINES = 80
_SHOWN_LINES = 3
_LINE_LIMIT = 300
# All three servers use the words of the operating system for a port that is taken.
_IN_USE = "Address already in use"
_NAMES_ERROR = re.compile(r"Exception: |Error: |FATAL:|PANIC:|# Fatal|# Bad file")


class Supervised:
    """A server and its current process."""

    def __init__(
        self,
        server: EmbeddedServer,
        *,
        log: Path,
        inherit: tuple[int, ...] = (),
        report: Callable[[str], None],
    ) -> None:
        self.server = server
        self.restarts = 0
        self._log = log
        self._inherit = inherit
        self._report = report
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child and self._child.status() is None else None

    @property
    def child(self) -> Child | None:
        return self._child

    async def start(self) -> None:
        """Start it and wait until it answers. Data that it refuses are mended if that loses nothing."""
        try:
            await self._start()
        except RefusedData:
            done = await self._mend()
            if done is None:
                raise
            self._report(f"{self.server.name}: {done}")
            await self._start()

    async def _mend(self) -> str | None:
        try:
            return await asyncio.to_thread(self.server.mend)
        except Misconfigured as error:
            # There may be room for it at the next try.
            raise ServerDied(str(error)) from None

    async def _start(self) -> None:
        await self.server.prepare()
        self._child = child = Child(self.server.command(), log=self._log, inherit=self._inherit)
        await _until_healthy(self.server, child)

    async def stop(self) -> None:
        if self._child is not None:
            await self._child.stop()

    async def kill(self) -> None:
        """Kill it at once, as a crash would."""
        if self._child is not None:
            self._child.kill()
            await self._child.wait()

    async def keep_alive(self) -> None:
        """Restart it whenever it dies; raises only if a restart cannot help."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            since = loop.time()
            await self._wait_for_death()
            failures = 1 if loop.time() - since > _STEADY_AFTER_S else failures + 1
            await asyncio.sleep(_BACKOFF.pause_s(failures))
            await self._start_again()

    async def _wait_for_death(self) -> None:
        if self._child is None:
            return
        status = await self._child.wait()
        # A dead postmaster leaves children behind that still hold its shared memory.
        self._child.kill()
        self._report(_obituary(self.server.name, status, self._child.last_lines(_LOOK_BACK_LINES)))

    async def _start_again(self) -> None:
        self.restarts += 1
        try:
            await self.start()
        except (ServerDied, OSError) as error:
            # The cause may pass, such as a full disk, so the next round tries again.
            self._report(f"{self.server.name} cannot start: {error}")
        else:
            self._report(f"{self.server.name} is back on port {self.server.port}")


class ServerDied(Misconfigured):
    """A server ended, or did not answer, while it was being started."""


class RefusedData(Misconfigured):
    """A server ended because it cannot use its data; another start would end the same way."""


class PortTaken(ServerDied):
    """Another program listens on the port of the server."""


async def _until_healthy(server: EmbeddedServer, child: Child) -> None:
    deadline = asyncio.get_running_loop().time() + _START_PATIENCE_S
    # First the answer, then the child: a dead child's port may be answered by another program.
    while not await _answers(server) or child.status() is not None:
        status = child.status()
        if status is not None:
            child.kill()
            lines = child.last_lines(_LOOK_BACK_LINES)
            if (reason := server.explain(lines)) is not None:
                raise RefusedData(reason)
            kind = PortTaken if any(_IN_USE in line for line in lines) else ServerDied
            raise kind(_obituary(server.name, status, lines))
        if asyncio.get_running_loop().time() > deadline:
            child.kill()
            raise ServerDied(
                f"{server.name} did not answer within {_START_PATIENCE_S:.0f} s; see `{child.log}`"
            )
        await asyncio.sleep(_POLL_S)


async def _answers(server: EmbeddedServer) -> bool:
    """Whether it is healthy. A program that took its port may accept a connection and stay silent."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await server.healthy()
    except TimeoutError:
        return False


def _obituary(name: str, status: int, lines: list[str]) -> str:
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    tail = " / ".join(line[:_LINE_LIMIT] for line in _telling(lines)) or "it logged nothing"
    return f"{name} {how}; its last lines: {tail}"


def _telling(lines: list[str]) -> list[str]:
    """The last lines that name an error, because a stack trace may follow them; else the last lines."""
    named = [line for line in lines if _NAMES_ERROR.search(line)]
    return (named or [line for line in lines if line])[-_SHOWN_LINES:]
