"""The servers of the client bench: one process of the API and real workers, in a folder of their own."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benches.answering import answering
from benches.children import child, child_environment
from benches.client_app import NOTES
from benches.client_calls import NOOP, PACED, QUEUE, REDIS, TOKEN
from benches.client_tasks import app as tasks_app
from benches.http import QUEUE as HTTP_QUEUE
from benches.servers import bench_stack
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.cli.declaring import declaration
from weir.control.database import Database
from weir.control.spec_plans import SpecText
from weir.control.tokens import Tokens
from weir.embedded.child import Child
from weir.embedded.ports import free_port
from weir.serve.bootstrap import ADMIN, DEFAULT, keep_token
from weir.serve.hooks import open_apps, open_specs
from weir.settings import StoreUrls, WorkerSettings
from weir.stores.migrations import migrate_stores

SPEC = f"""
app Bench {{
  queue {HTTP_QUEUE} {{}}
  queue {QUEUE} {{}}
  queue {NOOP} {{ message_type {{ last: int }}  map_to: command Bench.Noop {{ last: last }} }}
  queue {PACED} {{
    message_type {{ last: int, sent_ns: int }}
    map_to: command Bench.Paced {{ last: last, sent_ns: sent_ns }}
  }}
}}
"""
_CALL_S = 120.0
_SETTINGS = {
    "WEIR_API__LOG_LEVEL": "ERROR",
    # Every push is executed at once, as in `weir bench http`, whose batch rates are compared with these.
    "WEIR_LOAD__ADMISSION": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHouse:
    """The API and the folder of the notes that workers write."""

    url: str
    redis_url: str
    postgres_url: str
    token: str
    folder: Path
    api: Child

    async def call(self, name: str, count: int) -> dict[str, Any]:
        """Run one call of `client_calls` in its own process, and return its figures."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benches.client_calls", name, self.url, str(count),
            env=child_environment() | self._about_api() | {TOKEN: self.token, REDIS: self.redis_url},
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(_CALL_S):
                out, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            raise RuntimeError(f"`{name}` did not end within {_CALL_S:g} s") from None
        if process.returncode != 0:
            raise RuntimeError(f"`{name}` failed; its error is above")
        figures: dict[str, Any] = json.loads(out)
        return figures

    @asynccontextmanager
    async def worker(self, queue: str) -> AsyncIterator[Child]:
        """Run `weir worker` for one queue, with its default settings."""
        async with self._working("benches.client_app:app", queue) as process:
            yield process

    @asynccontextmanager
    async def task_worker(self, queue: str) -> AsyncIterator[Child]:
        """The same for an app of tasks."""
        async with self._working("benches.client_tasks:app", queue) as process:
            yield process

    @asynccontextmanager
    async def _working(self, app: str, queue: str) -> AsyncIterator[Child]:
        command, notes = ("worker", app, "--queue", queue), {NOTES: str(self.folder)}
        async with child(*_weir(self.folder, *command), folder=self.folder, **_SETTINGS, **notes) as process:
            yield process

    def _about_api(self) -> dict[str, str]:
        """The variables with which an app finds the API, as its user sets them."""
        return {"WEIR_URL": self.url, "WEIR_TOKEN": self.token}

    async def note(self, name: str) -> dict[str, Any]:
        """Wait for the next note of a command, remove it and return it."""
        path = self.folder / name
        async with asyncio.timeout(_CALL_S):
            while not path.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        note: dict[str, Any] = json.loads(path.read_text())
        path.unlink()
        return note


def memory_mib(process: Child) -> float:
    """The memory that the process takes now."""
    return round(float(psutil.Process(process.pid).memory_info().rss) / 2**20, 1)


@asynccontextmanager
async def open_house() -> AsyncIterator[ClientHouse]:
    """Start the servers and the API, with the bench's spec applied."""
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as name:
        folder = Path(name)
        async with bench_stack(folder) as stack:
            await migrate_stores(stack.urls)
            token = await _prepare(stack.urls, folder)
            port = free_port()
            serve = _weir(folder, "serve", "--port", str(port))
            async with child(*serve, folder=folder, **_SETTINGS) as api:
                yield ClientHouse(
                    url=await answering(port),
                    redis_url=stack.urls.redis,
                    postgres_url=stack.urls.postgres,
                    token=token,
                    folder=folder,
                    api=api,
                )


async def _prepare(urls: StoreUrls, folder: Path) -> str:
    broker = RedisBroker(RedisConnection(url=urls.redis))
    try:
        async with Database(urls.postgres, max_size=2) as database:
            specs = open_specs(database, broker, WorkerSettings())
            await specs.apply(DEFAULT, SpecText(source=SPEC, file="bench.weir"), actor="bench")
            await open_apps(database, specs).declare(
                DEFAULT, tasks_app.name, declaration(tasks_app), actor="bench"
            )
            return await keep_token(Tokens(database), folder / "admin.token", ADMIN)
    finally:
        await broker.aclose()


def _weir(folder: Path, name: str, *arguments: str) -> tuple[str, ...]:
    return ("-m", "weir.cli", name, "--data-dir", str(folder), *arguments)
