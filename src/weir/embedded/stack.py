"""Runs the servers that Weir needs as children of this process: starts, restarts and stops them together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from weir.embedded.clickhouse import ClickHouseServer
from weir.embedded.datadir import DataDir
from weir.embedded.ports import choose_ports
from weir.embedded.postgres import PostgresServer
from weir.embedded.redis import RedisServer
from weir.embedded.run_file import publish_urls
from weir.embedded.server import EmbeddedServer
from weir.embedded.supervised import PortTaken, Supervised
from weir.settings import StoreUrls

Report = Callable[[str], None]
_PORT_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Ports that the operator set; None picks a free one and keeps it for the next start."""

    redis: int | None = None
    postgres: int | None = None
    clickhouse: int | None = None
    reserved: frozenset[int] = frozenset()
    """Ports of other parts of the system, which no server may take."""


class Stack:
    """The embedded servers of one data directory."""

    def __init__(
        self,
        data_dir: Path,
        *,
        ports: Ports | None = None,
        durable: bool = False,
        redis_program: Path | None = None,
        report: Report = lambda _: None,
    ) -> None:
        self.data_dir = DataDir(data_dir)
        self._ports = ports or Ports()
        self._durable = durable
        self._redis_program = redis_program
        self._report = report
        self._running: list[Supervised] = []
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Lock the directory and start all servers at the same time; returns when all of them answer."""
        await self.data_dir.open()
        try:
            # Earlier versions made this folder open to others, and its archive holds data of tenants.
            self.data_dir.folder("pipeline")
            self.data_dir.ensure_sealing_key()
            await self._start_servers()
            publish_urls(self.data_dir, self.urls)
        except BaseException:
            await self.stop()
            raise
        self._watch = asyncio.create_task(self._keep_alive(), name="embedded servers")

    async def _start_servers(self) -> None:
        """Start all servers. If another program takes a port just before its server does, choose again.

        A port that the operator set is not free then, and `choose_ports` says so.
        """
        for attempt in range(1, _PORT_TRIES + 1):
            self._running = [self._supervise(server) for server in self._make_servers()]
            try:
                await _all_or_first_error([child.start() for child in self._running])
            except PortTaken:
                if attempt == _PORT_TRIES:
                    raise
                await self._stop_servers()
            else:
                return

    async def _stop_servers(self) -> None:
        await asyncio.gather(*(child.stop() for child in self._running))

    async def stop(self) -> None:
        """Stop every server in whatever state it is, and unlock the directory."""
        if self._watch is not None:
            self._watch.cancel()
            # `wait` raises nothing: `wait_for_failure` raises the failure, which must not prevent the stop.
            await asyncio.wait([self._watch])
            self._watch = None
        try:
            await self._stop_servers()
        finally:
            self.data_dir.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def redis_url(self) -> str:
        return self._server("redis").url

    @property
    def postgres_url(self) -> str:
        return self._server("postgres").url

    @property
    def clickhouse_url(self) -> str:
        return self._server("clickhouse").url

    @property
    def urls(self) -> StoreUrls:
        return StoreUrls(redis=self.redis_url, postgres=self.postgres_url, clickhouse=self.clickhouse_url)

    @property
    def servers(self) -> list[Supervised]:
        return list(self._running)

    async def wait_for_failure(self) -> None:
        """Never return; raise if a server cannot be restarted."""
        if self._watch is not None:
            await asyncio.shield(self._watch)

    def _server(self, name: str) -> EmbeddedServer:
        return next(child.server for child in self._running if child.server.name == name)

    def _supervise(self, server: EmbeddedServer) -> Supervised:
        return Supervised(
            server,
            log=self.data_dir.folder("logs") / f"{server.name}.log",
            inherit=(self.data_dir.lock_fd,),
            report=self._report,
        )

    def _make_servers(self) -> list[EmbeddedServer]:
        wanted = self._ports
        ports = choose_ports(
            {"redis": wanted.redis, "postgres": wanted.postgres, "clickhouse": wanted.clickhouse},
            before=self.data_dir.read_json("ports.json"),
            reserved=wanted.reserved,
        )
        # Kept, so that URLs stay the same after a restart.
        self.data_dir.write_json("ports.json", ports)
        password, root = self.data_dir.password(), self.data_dir.path
        return [
            RedisServer(
                root / "redis",
                port=ports["redis"],
                password=password,
                durable=self._durable,
                program=self._redis_program,
            ),
            PostgresServer(root / "postgres", port=ports["postgres"], password=password),
            ClickHouseServer(root / "clickhouse", port=ports["clickhouse"], password=password),
        ]

    async def _keep_alive(self) -> None:
        await _all_or_first_error([child.keep_alive() for child in self._running])


async def _all_or_first_error(jobs: list[Coroutine[Any, Any, None]]) -> None:
    """Run all jobs; at the first failure cancel the others and raise it."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
