"""The whole embedded system: servers, migrations, API and loops, and the pipeline beside them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from weir.embedded.child import Child, ChildCommand
from weir.embedded.open import stack_from
from weir.embedded.ports import is_free
from weir.embedded.stack import Stack
from weir.errors import WeirError
from weir.serve.run import served
from weir.serve.server import bind
from weir.settings import PREFIX, Settings
from weir.stores.migrations import RegisteredMetrics, migrate_stores

_PASSED_ON = ("JAVA_HOME", "LANG", "USER", "XDG_RUNTIME_DIR")
_STORES = frozenset({"WEIR_REDIS_URL", "WEIR_POSTGRES_URL", "WEIR_CLICKHOUSE_URL"})
"""Settings that children do not get, because they use the embedded stores."""
_PATIENCE_S = 15.0
"""How long a child may take to end: Spark finishes its batch first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The servers and the API in this process, and the children that run beside it."""

    stack: Stack
    url: str
    children: dict[str, Child]

    def endings(self) -> list[Awaitable[None]]:
        """One wait per part; each raises when its part has failed for good."""
        return [
            self.stack.wait_for_failure(),
            *(_fail_at_end(name, child) for name, child in self.children.items()),
        ]


@asynccontextmanager
async def running_api(settings: Settings, *, report: Callable[[str], None]) -> AsyncIterator[System]:
    """Run and migrate the embedded servers, and serve the API on them, while the block runs."""
    settings = with_free_port(settings)
    async with stack_from(settings, report=report) as stack:
        await migrate_stores(stack.urls, metrics=RegisteredMetrics.of(settings))
        async with served(settings, stack.urls, token_dir=stack.data_dir.path) as url:
            yield System(stack=stack, url=url, children={})


@asynccontextmanager
async def running_children(
    system: System, commands: Mapping[str, tuple[str, ...]], *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[dict[str, Child]]:
    """Run further processes of the system, by name; at the end of the block all are stopped at once."""
    folder = system.stack.data_dir.path
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_stop_all, system.children)
        for name, argv in commands.items():
            system.children[name] = _start(argv, folder, name, environment or {})
        yield system.children


def pipeline_command(folder: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "weir.cli", "pipeline", "run", "--data-dir", str(folder))


def with_free_port(settings: Settings) -> Settings:
    """Take another port if the default one is busy; a busy port from the settings is an error."""
    api = settings.api
    if "port" not in api.model_fields_set and not is_free(api.port):
        return settings.model_copy(update={"api": api.model_copy(update={"port": 0})})
    # Bind once now, so that a busy port is an error before the servers start.
    bind(api.host, api.port).close()
    return settings


async def first_ending(waits: list[Awaitable[None]]) -> None:
    """Return when the first of the waits returns, or raise its error; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _start(argv: tuple[str, ...], folder: Path, name: str, environment: Mapping[str, str]) -> Child:
    passed = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    settings = {
        key: value for key, value in os.environ.items() if key.startswith(PREFIX) and key not in _STORES
    }
    command = ChildCommand(argv=argv, cwd=folder, env={**passed, **settings, **environment})
    return Child(command, log=folder / "logs" / f"{name}.log")


async def _stop_all(children: dict[str, Child]) -> None:
    await asyncio.gather(*(child.stop(patience_s=_PATIENCE_S) for child in children.values()))


async def _fail_at_end(name: str, child: Child) -> None:
    status = await child.wait()
    lines = "\n".join(child.last_lines())
    raise WeirError(f"the {name} ended with status {status}; see `{child.log}`\n{lines}")
