"""`weir worker module:app` for an app of tasks: declares it, then works over HTTP or on the stores."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import typer

from weir.broker.broker import Broker
from weir.cli.alive_file import keep_fresh
from weir.cli.declaring import declare_over_http, plan_over_http, session_of
from weir.cli.service_manager import tell_ready
from weir.client.errors import ClientError
from weir.control.database import Database
from weir.embedded.run_file import running_urls
from weir.errors import InvalidInput, Unavailable
from weir.model.names import EnvironmentRef
from weir.model.open_files import raise_file_limit
from weir.model.wording import amount
from weir.serve.loops import Loop, LoopSupervisor
from weir.settings import Settings
from weir.spec.plan import rendered_plan
from weir.tasks.address import find_api
from weir.tasks.app import App
from weir.tasks.broker_backend import BrokerBackend, BrokerTasks
from weir.tasks.http_worker import HttpWorkerOptions, TaskConsumer, check_queue_count, consume
from weir.tasks.processes import TaskProcesses
from weir.tasks.run import TaskRunner
from weir.tasks.worker_port import TaskCounts, worker_port
from weir.workers.commands import load_target
from weir.workers.threads import DaemonThreads
from weir.workers.timeline import Timelines

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTarget:
    """An app and how `module:app` spells it."""

    app: App
    target: str


def find_tasks(target: str | None) -> TaskTarget | None:
    """The app of tasks that `module:app` names; None if it names commands, or nothing."""
    found = None if target is None else load_target(target)
    return TaskTarget(app=found, target=target) if isinstance(found, App) and target is not None else None


def uses_http(settings: Settings) -> bool:
    """Whether a worker of tasks uses the API: the URL of an API is set, or no stores are known."""
    if settings.redis_url is not None and settings.postgres_url is not None:
        return False
    return settings.url is not None or running_urls(settings.embedded.data_dir) is None


def environment_of(app: App, scope: EnvironmentRef | None) -> EnvironmentRef:
    """The environment of a worker on the stores."""
    address = app.address
    return scope or EnvironmentRef(
        organization=address.organization or "default",
        project=address.project or "default",
        environment=address.environment or "default",
    )


def chosen_queues(app: App, queues: frozenset[str]) -> frozenset[str]:
    """The queues of an app that a worker serves: the named ones, or all."""
    own = frozenset(queue.name for queue in app.spec().queues)
    if not own:
        raise InvalidInput(f"the app `{app.name}` has no task; decorate a function with `@app.task()`")
    unknown = queues - own
    if unknown:
        raise InvalidInput(
            f"the app `{app.name}` has no queue `{min(unknown)}`; it has {', '.join(sorted(own))}"
        )
    return queues or own


async def show_plan(app: App) -> bool:
    """Print what declaring an app would change, and return whether it is allowed."""
    async with aclosing(session_of(find_api(app.address))) as api:
        found = await plan_over_http(api, app)
    typer.echo(rendered_plan(found))
    return found.allowed


async def work_over_http(one: TaskTarget, settings: Settings, *, name: str, queues: frozenset[str]) -> None:
    """Work until cancelled, using only the API and no stores."""
    app, address = one.app, find_api(one.app.address)
    served = chosen_queues(app, queues)
    check_queue_count(len(served), max_files=raise_file_limit())
    async with aclosing(session_of(address)) as api:
        await declare_over_http(api, app)
    counts, ready = TaskCounts(), asyncio.Event()
    options = HttpWorkerOptions(
        name=name, concurrency=settings.worker.concurrency, drain_s=settings.worker.drain_s
    )
    async with AsyncExitStack() as stack:
        weir = await stack.enter_async_context(address.client())
        stack.push_async_callback(app.aclose)
        processes = await stack.enter_async_context(aclosing(TaskProcesses(one.target)))
        runner = TaskRunner(app, executor=DaemonThreads(), processes=processes, counts=counts)
        await open_port(stack, settings, counts, is_ready=ready.is_set)
        if settings.worker.alive_file is not None:
            loops = (Loop(name="alive-file", run=partial(keep_fresh, settings.worker.alive_file)),)
            await stack.enter_async_context(LoopSupervisor(loops).running())
        consumers = [
            TaskConsumer(weir, queue, runner, options) for queue in app.spec().queues if queue.name in served
        ]
        ready.set()
        say_working(name, app, served, where=str(address.url))
        try:
            await consume(consumers, drain_s=settings.worker.drain_s)
        except ClientError as error:
            raise Unavailable(f"the API refuses to hand out messages: {error}") from None


async def open_port(
    stack: AsyncExitStack, settings: Settings, counts: TaskCounts, *, is_ready: Callable[[], bool]
) -> None:
    """Answer on the port of the worker, if it has one, until the stack is left."""
    port = await stack.enter_async_context(worker_port(settings.worker.port, counts, is_ready=is_ready))
    if port is not None:
        typer.echo(f"weir: metrics and probes at port {port}", err=True)


async def open_tasks(
    stack: AsyncExitStack,
    one: TaskTarget,
    broker: Broker,
    database: Database,
    environment: EnvironmentRef,
    settings: Settings,
) -> BrokerTasks:
    """The tasks of an app on the broker. Pushes by these tasks go to the same broker."""
    counts, loop = TaskCounts(), asyncio.get_running_loop()
    backend = BrokerBackend(broker, environment, timelines=Timelines(database, broker))
    one.app.redirect(backend, partial(_wait_in_thread, loop))
    processes = await stack.enter_async_context(aclosing(TaskProcesses(one.target)))
    await open_port(stack, settings, counts, is_ready=lambda: True)
    return BrokerTasks(one.app, broker, executor=DaemonThreads(), processes=processes, counts=counts)


def _wait_in_thread(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Wait for work of the worker's event loop from the thread of a synchronous task."""
    with suppress(RuntimeError):
        if asyncio.get_running_loop() is loop:
            work.close()
            raise InvalidInput("an asynchronous task would wait for itself; use `await task.apush(…)` in it")
    return asyncio.run_coroutine_threadsafe(work, loop).result()


def show_task_logs(level: str) -> None:
    """Show the lines of `context.log` at or above the worker's log level."""
    logging.getLogger("weir.task").setLevel(logging.getLevelNamesMapping()[level.upper()])


def say_working(name: str, app: App, queues: frozenset[str], *, where: str) -> None:
    tasks = sum(task.queue in queues for task in app.tasks.values())
    what = f"{amount(tasks, 'task')} of " if tasks else ""
    typer.echo(
        f"working as {name} on {what}{', '.join(sorted(queues))} at {where}; Ctrl-C drains and stops it",
        err=True,
    )
    tell_ready()
