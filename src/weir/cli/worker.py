"""`weir worker`: run the handlers that specs give to messages, or the tasks of an app, until Ctrl-C."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import structlog
import typer

from weir.api.logs import configure_logs
from weir.broker.observed import Observed
from weir.cli.alive_file import keep_fresh
from weir.cli.declaring import declare_in_stores
from weir.cli.options import DataDirOption, settings_with
from weir.cli.running import import_from_here, run_until_done
from weir.cli.service_manager import tell_ready
from weir.cli.task_worker import (
    TaskTarget,
    chosen_queues,
    environment_of,
    find_tasks,
    open_tasks,
    show_plan,
    show_task_logs,
    uses_http,
    work_over_http,
)
from weir.cli.watching import watch_worker
from weir.control.database import Database
from weir.control.epochs import Epochs
from weir.errors import InvalidInput, Misconfigured
from weir.model.names import EnvironmentRef
from weir.serve.collector import calm_collector
from weir.serve.hooks import open_worker
from weir.serve.loops import Loop, LoopSupervisor
from weir.serve.worker_processes import WorkerProcesses
from weir.settings import Settings, StoreUrls, opentelemetry_variables
from weir.stores.open import open_stores
from weir.stores.urls import resolve_urls
from weir.telemetry.emitter import StreamEmitter
from weir.telemetry.live_workers import AliveSignal
from weir.telemetry.presence import Presence
from weir.telemetry.process_counts import ProcessCounts
from weir.telemetry.sampler import Probes, ProcessIdentity, ProcessSampler
from weir.tracing.export import tracing
from weir.workers.worker import WorkerOptions

app = typer.Typer()
log = structlog.get_logger("weir.worker")


@app.command()
def worker(
    target: Annotated[
        str | None, typer.Argument(help="App of tasks or of commands, as `module:app`.", metavar="[APP]")
    ] = None,
    app_target: Annotated[
        str | None,
        typer.Option(
            "--app", help="The app as an option instead of an argument; left out: WEIR_WORKER__APP."
        ),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Work on this many messages at once.")
    ] = None,
    prefetch: Annotated[
        int | None,
        typer.Option(
            min=0, help="Claim this many messages ahead; left out: it depends on how fast handlers are."
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=256, help="Keep this many worker processes running.")
    ] = None,
    queue: Annotated[
        list[str] | None, typer.Option(help="Work only on this queue; repeat it for several.")
    ] = None,
    scope: Annotated[
        tuple[str, str, str] | None,
        typer.Option("--only", help="Work only for this environment: organization, project, environment."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Port for /metrics, /livez and /readyz of a worker of tasks."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Start again when a Python file below this folder changes.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only show what declaring the app of tasks would change.")
    ] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Run the tasks of an app, or the handlers that specs give to queues. SIGTERM drains and ends it."""
    settings = settings_with(data_dir)
    given = {
        "app": target or app_target,
        "concurrency": concurrency,
        "prefetch": prefetch,
        "processes": processes,
        "port": port,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    settings = settings.model_copy(update={"worker": settings.worker.model_copy(update=chosen)})
    import_from_here()
    configure_logs(level=settings.api.log_level)
    arguments = _arguments(given, queue or (), scope, data_dir)
    if watch:
        run_until_done(watch_worker(arguments, drain_s=settings.worker.drain_s))
        return
    if settings.worker.port and settings.worker.processes > 1:
        raise Misconfigured("several processes cannot answer on one port; give them `--port 0`")
    tasks = find_tasks(settings.worker.app)
    if plan:
        _show_plan(tasks)
    if settings.worker.processes > 1:
        _supervise(settings, arguments)
    options = WorkerOptions(
        name=f"{socket.gethostname()}:{os.getpid()}",
        concurrency=settings.worker.concurrency,
        prefetch=settings.worker.prefetch,
        drain_s=settings.worker.drain_s,
        environment=_environment(scope),
        queues=frozenset(queue or ()),
    )
    drain_s = settings.worker.drain_s
    if tasks is None:
        run_until_done(work(settings, resolve_urls(settings), options), fast=True, drain_s=drain_s)
        return
    show_task_logs(settings.api.log_level)
    if uses_http(settings):
        working = work_over_http(tasks, settings, name=options.name, queues=options.queues)
        run_until_done(working, fast=True, drain_s=drain_s)
        return
    options = replace(
        options,
        environment=environment_of(tasks.app, options.environment),
        queues=chosen_queues(tasks.app, options.queues),
        tasks=True,
    )
    run_until_done(work(settings, resolve_urls(settings), options, tasks=tasks), fast=True, drain_s=drain_s)


def _show_plan(tasks: TaskTarget | None) -> NoReturn:
    if tasks is None:
        raise Misconfigured("`--plan` is for an app of tasks; name one as `module:app`")
    raise typer.Exit(0 if run_until_done(show_plan(tasks.app)) else 1)


def _supervise(settings: Settings, arguments: list[str]) -> NoReturn:
    """Keep several processes working until a signal, and exit with their status."""
    processes = WorkerProcesses(arguments, count=settings.worker.processes, drain_s=settings.worker.drain_s)
    raise typer.Exit(run_until_done(processes.run()) or 0)


def _arguments(
    given: Mapping[str, object],
    queues: Sequence[str],
    scope: tuple[str, str, str] | None,
    data_dir: Path | None,
) -> list[str]:
    """The arguments of a child: the given options, but with one process."""
    options = {**given, "processes": 1, "data-dir": data_dir}
    arguments = [
        text for name, value in options.items() if value is not None for text in (f"--{name}", str(value))
    ]
    for name in queues:
        arguments += ("--queue", name)
    return [*arguments, "--only", *scope] if scope else arguments


async def work(
    settings: Settings, urls: StoreUrls, options: WorkerOptions, *, tasks: TaskTarget | None = None
) -> None:
    """Open the stores, start the loops that a worker needs, and work until cancelled."""
    async with AsyncExitStack() as stack:
        tracer = await stack.enter_async_context(
            tracing(opentelemetry_variables(), service="weir-worker", say=log.warning)
        )
        counts = ProcessCounts()
        database = Database(urls.postgres, name="weir-worker", max_size=4, activity=counts)
        stores = await open_stores(
            stack, urls, database=database, shards=settings.shards, say=log.warning, activity=counts
        )
        await Epochs(database, stores.broker).agree()
        broker = Observed(stores.broker, activity=counts, tracer=tracer)
        emitter = StreamEmitter(stores.redis, shards=settings.shards)
        identity = ProcessIdentity(role="worker")
        presence = Presence(stores.redis, worker_id=identity.worker_id)
        probes = Probes(
            free_slots=lambda: running.free_slots,
            pool_size=lambda: options.concurrency,
            internal_queue=lambda: running.fetched_ahead,
        )
        sampler = ProcessSampler(identity, emitter, counts, probes=probes)
        handler = None
        if tasks is not None and options.environment is not None:
            await declare_in_stores(database, broker, settings, options.environment, tasks.app)
            handler = await open_tasks(stack, tasks, broker, database, options.environment, settings)
        running, loops = await open_worker(
            stack,
            database,
            broker,
            settings,
            options,
            presence=presence,
            count_job=counts.count_job,
            tracer=tracer,
            tasks=handler,
        )
        alive = AliveSignal(stores.redis, worker_id=identity.worker_id, look=running.described)
        reporting: dict[str, Callable[[], Awaitable[None]]] = {
            "emitter": emitter.run,
            "sampler": sampler.run,
            "presence": presence.run,
            "alive": alive.run,
        }
        if settings.worker.alive_file is not None:
            reporting["alive-file"] = partial(keep_fresh, settings.worker.alive_file)
        loops = (*loops, *(Loop(name=name, run=run) for name, run in reporting.items()))
        calm_collector()
        async with LoopSupervisor(loops).running():
            typer.echo(f"working as {options.name}; Ctrl-C drains and stops it", err=True)
            tell_ready()
            await running.run()


def _environment(scope: tuple[str, str, str] | None) -> EnvironmentRef | None:
    if scope is None:
        return None
    if not all(scope):
        raise InvalidInput("`--only` takes three names: organization, project and environment")
    organization, project, environment = scope
    return EnvironmentRef(organization=organization, project=project, environment=environment)
