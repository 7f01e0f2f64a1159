"""Servers, API processes and a token for the load bench."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import psutil

from benches.answering import answering
from benches.children import child
from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tokens import Tokens
from weir.embedded.child import Child
from weir.embedded.ports import free_port
from weir.serve.bootstrap import ADMIN, DEFAULT, keep_token
from weir.settings import StoreUrls
from weir.spec.ir import QueueSpec

QUEUES = ("load", "calm", "drain", "wild", "turns")


class ApiProcess:
    """A process that answers requests, with its memory and processor time."""

    def __init__(self, process: Child, port: int) -> None:
        self.port = port
        self._process = process

    def rss_mib(self) -> float:
        return float(psutil.Process(self._process.pid).memory_info().rss) / 2**20

    def cpu_s(self) -> float:
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)


def redis_cpu_s() -> float:
    """Processor time of the Redis that this process started."""
    spent = 0.0
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if one.name() in ("valkey-server", "redis-server"):
                times = one.cpu_times()
                spent += float(times.user + times.system)
    return spent


async def prepare(urls: StoreUrls, folder: Path) -> str:
    """Define the queues; returns a token."""
    async with Database(urls.postgres, max_size=2) as database:
        definitions = QueueDefinitions(database)
        for name in QUEUES:
            await definitions.define(DEFAULT.queue(name), QueueSpec(name=name))
        return await keep_token(Tokens(database), folder / "admin.token", ADMIN)


@asynccontextmanager
async def api_processes(folder: Path, *, count: int, admission: bool) -> AsyncIterator[list[ApiProcess]]:
    """Start processes of the API, and wait until they answer."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(_api_process(folder, admission=admission)) for _ in range(count)
        ]


@asynccontextmanager
async def _api_process(folder: Path, *, admission: bool) -> AsyncIterator[ApiProcess]:
    port = free_port()
    # Without admission, no other limit may refuse requests either, because that would hide the collapse.
    options = {} if admission else {"WEIR_LOAD__ADMISSION": "false", "WEIR_API__MAX_CONCURRENCY": "1000000"}
    command = ("-m", "weir.cli", "serve", "--data-dir", str(folder), "--port", str(port))
    async with child(*command, folder=folder, WEIR_API__LOG_LEVEL="ERROR", **options) as process:
        await answering(port)
        yield ApiProcess(process, port)


@asynccontextmanager
async def api_with_and_without(folder: Path) -> AsyncIterator[tuple[ApiProcess, ApiProcess]]:
    """One process that answers on two ports: with admission and without."""
    ports = (first := free_port()), free_port(other_than={first})
    command = ("-m", "benches.load_both", str(folder), *map(str, ports))
    async with child(*command, folder=folder, WEIR_API__LOG_LEVEL="ERROR") as process:
        for port in ports:
            await answering(port)
        yield ApiProcess(process, ports[0]), ApiProcess(process, ports[1])


async def watch(processes: list[ApiProcess]) -> list[list[float]]:
    """The memory of each process over time, until cancelled."""
    seen: list[list[float]] = []
    try:
        while True:
            seen.append([round(process.rss_mib(), 1) for process in processes])
            await asyncio.sleep(5)
    except asyncio.CancelledError:
        return seen
