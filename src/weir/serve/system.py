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
from weir.embedded.kept import KeptChild, how_it_ended
from weir.embedded.open import stack_from
from weir.embedded.ports import is_free
from weir.embedded.stack import Stack
from weir.errors import WeirError
from weir.model.asyncio_tasks import cancel_and_wait
from weir.serve.run import served
from weir.serve.server import bind
from weir.settings import PREFIX, Settings
from weir.stores.migrations import RegisteredMetrics, migrate_stores

_PASSED_ON = ("JAVA_HOME", "LANG", "USER", "XDG_RUNTIME_DIR")
_STORES = frozenset({"WEIR_REDIS_URL", "WEIR_POSTGRES_URL", "WEIR_CLICKHOUSE_URL"})
"""Settings that children do not get, because they use the embedded stores."""
_PATIENCE_S = 15.0
"""How long a child may take to end: Spark finishes its batch first."""
_MISCONFIGURED = 2
"""The exit status of a command that was refused: bad settings end every start in the same way."""

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The servers and the API in this process, and the children that run beside it."""

    stack: Stack
    url: str
    report: Report
    children: dict[str, KeptChild]
    keepers: dict[str, asyncio.Task[int]]

    def endings(self) -> list[Awaitable[None]]:
        """One wait per part; each raises when its part has failed for good."""
        return [
            self.stack.wait_for_failure(),
            *(_fail_at_end(name, self.children[name], keeper) for name, keeper in self.keepers.items()),
        ]


@asynccontextmanager
async def running_api(settings: Settings, *, report: Report) -> AsyncIterator[System]:
    """Run and migrate the embedded servers, and serve the API on them, while the block runs."""
    settings = with_free_port(settings)
    async with stack_from(settings, report=report) as stack:
        await migrate_stores(stack.urls, metrics=RegisteredMetrics.of(settings))
        async with served(settings, stack.urls, token_dir=stack.data_dir.path) as url:
            yield System(stack=stack, url=url, report=report, children={}, keepers={})


@asynccontextmanager
async def running_children(
    system: System, commands: Mapping[str, tuple[str, ...]], *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[None]:
    """Keep further processes of the system running, by name; at the end of the block all are stopped at once.

    A process that ends is started again, so that its end never touches the queues.
    """
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_stop_all, system)
        for name, argv in commands.items():
            system.children[name] = kept = _kept(system, argv, name, environment or {})
            system.keepers[name] = asyncio.create_task(_keep(kept), name=name)
        yield


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


def _kept(system: System, argv: tuple[str, ...], name: str, environment: Mapping[str, str]) -> KeptChild:
    folder = system.stack.data_dir.path
    passed = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    settings = {
        key: value for key, value in os.environ.items() if key.startswith(PREFIX) and key not in _STORES
    }

    def on_end(child: Child, status: int, pause_s: float) -> None:
        system.report(
            f"the {name} ended with {how_it_ended(status)}; it is started again in {pause_s:.1f} s, and the "
            f"queues go on; see `{child.log}`"
        )

    command = ChildCommand(argv=argv, cwd=folder, env={**passed, **settings, **environment})
    return KeptChild(command, log=folder / "logs" / f"{name}.log", on_end=on_end)


async def _keep(kept: KeptChild) -> int:
    """Keep it running. It is given up only if its first start was refused: a person must mend that."""
    return await kept.keep(gives_up=lambda status: status == _MISCONFIGURED and not kept.restarts)


async def _stop_all(system: System) -> None:
    await cancel_and_wait(system.keepers.values())
    await asyncio.gather(*(kept.stop(patience_s=_PATIENCE_S) for kept in system.children.values()))


async def _fail_at_end(name: str, kept: KeptChild, keeper: asyncio.Task[int]) -> None:
    status = await asyncio.shield(keeper)
    lines = "\n".join(kept.child.last_lines()) if kept.child else ""
    log = kept.child.log if kept.child else None
    raise WeirError(f"the {name} ended with status {status}; see `{log}`\n{lines}")
