"""`weir dlq redrive` and its kin: tasks begun, followed with a progress bar, paused and resumed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from weir.cli.options import DataDirOption, JsonOption, settings_with
from weir.cli.scope import ACTOR, Desk, Place, at_desk, scoped
from weir.cli.tables import OutputTable, id_column, long_column, number_column
from weir.deadletters.filters import Filter
from weir.deadletters.runner import TaskRunner
from weir.deadletters.tasks import NewTask, Task, TaskKind, TaskState

tasks_app = typer.Typer()

QueueFilter = Annotated[str | None, typer.Option("--queue", "-q", help="Only this queue.")]
Fingerprint = Annotated[str | None, typer.Option(help="Only this group of errors.")]
Where = Annotated[str | None, typer.Option(help="CEL over a dead letter, such as `payload.amount > 100`.")]
Reason = Annotated[str | None, typer.Option(help="attempts, rejected, expired or lapsed.")]
DiedFrom = Annotated[int | None, typer.Option(help="Died at or after, in ms since the epoch.")]
DiedTo = Annotated[int | None, typer.Option(help="Died at or before, in ms since the epoch.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count.")]
Rate = Annotated[float | None, typer.Option(help="At most so many a second.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Detach = Annotated[bool, typer.Option("--detach", help="Leave it to the running servers and return.")]
TaskId = Annotated[str, typer.Argument(help="The id of the task.")]


@tasks_app.command()
@scoped
def redrive(
    place: Place,
    queue: QueueFilter = None,
    fingerprint: Fingerprint = None,
    where: Where = None,
    reason: Reason = None,
    died_from: DiedFrom = None,
    died_to: DiedTo = None,
    dry_run: DryRun = False,
    rate: Rate = None,
    canary: Annotated[int, typer.Option(min=0, max=1_000, help="Send so many first and wait for them.")] = 0,
    tolerance: Annotated[float, typer.Option(help="The share that may die again.")] = 0.0,
    patch: Annotated[str | None, typer.Option(help="CEL; its answer is merged into each payload.")] = None,
    yes: Yes = False,
    detach: Detach = False,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters back to their queues."""
    chosen = Filter(
        queue=queue,
        fingerprint=fingerprint,
        reason=reason,
        died_from_ms=died_from,
        died_to_ms=died_to,
        expression=where,
    )
    new = NewTask(
        kind=TaskKind.REDRIVE,
        filter=chosen,
        everything=chosen.empty,
        dry_run=dry_run,
        rate_per_s=rate,
        canary=canary,
        canary_tolerance=tolerance,
        patch=patch,
    )
    if chosen.empty and not dry_run and not yes:
        _ask(f"Send the dead letters of every queue of `{place.environment.environment}` back?")
    _begin(place, new, detach=detach, as_json=as_json)


@tasks_app.command()
@scoped
def purge(
    place: Place,
    queue: QueueFilter = None,
    fingerprint: Fingerprint = None,
    where: Where = None,
    reason: Reason = None,
    died_from: DiedFrom = None,
    died_to: DiedTo = None,
    everything: Annotated[
        bool, typer.Option("--include-unexhausted", help="Also those with attempts left.")
    ] = False,
    dry_run: DryRun = False,
    rate: Rate = None,
    yes: Yes = False,
    detach: Detach = False,
    as_json: JsonOption = False,
) -> None:
    """Delete dead letters for good."""
    chosen = Filter(
        queue=queue,
        fingerprint=fingerprint,
        reason=reason,
        died_from_ms=died_from,
        died_to_ms=died_to,
        expression=where,
        include_unexhausted=everything,
    )
    new = NewTask(
        kind=TaskKind.PURGE, filter=chosen, everything=chosen.empty, dry_run=dry_run, rate_per_s=rate
    )
    if not dry_run and not yes:
        every = f"the dead letters of every queue of `{place.environment.environment}`"
        _ask(f"Delete {every if chosen.empty else 'these dead letters'} for good?")
    _begin(place, new, detach=detach, as_json=as_json)


@tasks_app.command()
@scoped
def tasks(
    place: Place,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 20,
    as_json: JsonOption = False,
) -> None:
    """The newest redrives and purges."""

    async def work(desk: Desk) -> list[Task]:
        return await desk.room.tasks.newest(desk.environment, limit=limit)

    found = at_desk(place, work)
    if as_json:
        typer.echo(json.dumps([task.described() for task in found]))
        return
    table = OutputTable(id_column(), "kind", "state", long_column("what it did"))
    for task in found:
        kind = f"{task.kind} (dry run)" if task.dry_run else str(task.kind)
        table.add_row(task.id, kind, str(task.state), summed_up(task))
    table.print()


@tasks_app.command()
@scoped
def pause(
    place: Place,
    task_id: TaskId,
) -> None:
    """Hold a task; what it did stays done."""
    _change(place, "pause", task_id)


@tasks_app.command()
@scoped
def resume(
    place: Place,
    task_id: TaskId,
) -> None:
    """Go on with a task, where it was."""
    _change(place, "resume", task_id)


@tasks_app.command()
@scoped
def cancel(
    place: Place,
    task_id: TaskId,
) -> None:
    """End a task; what it did stays done."""
    _change(place, "cancel", task_id)


@tasks_app.command()
def analyse(
    partitions: Annotated[int, typer.Option(min=1, max=10_000, help="Parts to read side by side.")] = 8,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many groups to print.")] = 20,
    output: Annotated[Path | None, typer.Option(help="Also write everything there, as Parquet.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark master.")] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Regroup the whole table in Spark and show the trends, for tables too large for one query."""
    from weir.serve.deadletters import analyse_dead_letters

    found = analyse_dead_letters(
        settings_with(data_dir), partitions=partitions, limit=limit, output=output, master=master
    )
    if as_json:
        typer.echo(json.dumps(found))
        return
    table = OutputTable(
        id_column("group"),
        *(number_column(name) for name in ("dead", "queues", "tenants", "busiest hour", "trend")),
        long_column("error"),
    )
    for group in found["groups"]:
        table.add_row(
            group["fingerprint"],
            f"{group['dead']:,}",
            str(group["queues"]),
            str(group["tenants"]),
            f"{group['busiest_hour']:,}",
            f"{group['trend']:+.0%}",
            group["template"][:80],
        )
    table.print()
    typer.echo(f"{found['letters']:,} dead letters in {found['kinds']:,} groups", err=True)


def _ask(question: str) -> None:
    """End the command unless the answer is yes. The question is not part of the output."""
    typer.confirm(question, abort=True, err=True)


def _begin(place: Place, new: NewTask, *, detach: bool, as_json: bool) -> None:
    async def work(desk: Desk) -> Task:
        task = await desk.room.tasks.create(desk.environment, new, by=ACTOR)
        return task if detach else await _followed(desk, task, quiet=as_json)

    task: Any = at_desk(place, work)
    if task is None:
        typer.echo("stopped looking; running servers go on with the task, see `weir dlq tasks`", err=True)
        raise typer.Exit(130)
    if as_json:
        typer.echo(json.dumps(task.described()))
    else:
        typer.echo(f"{task.id} {task.state}: {summed_up(task)}")
    if task.state in (TaskState.STOPPED_BY_CANARY, TaskState.FAILED):
        raise typer.Exit(1)


def summed_up(task: Task) -> str:
    """One line on what a task did."""
    text = f"{task.matched:,} matched of {task.scanned:,}"
    if not task.dry_run:
        text += f", {task.done:,} {'deleted' if task.kind is TaskKind.PURGE else 'sent back'}"
    if task.skipped:
        text += f", {task.skipped:,} skipped ({task.problem})"
    if task.died_again:
        text += f", {task.died_again:,} died again"
    return f"{text}; {task.note}" if task.note else text


async def _followed(desk: Desk, task: Task, *, quiet: bool) -> Task:
    """Work on the task here, beside any server that does, and draw how far it is."""
    runner = TaskRunner(desk.broker, desk.room.database)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as progress:
        bar = progress.add_task(str(task.kind), total=task.expected)
        while not task.state.over and task.state is not TaskState.PAUSED:
            stepped = await runner.step(task.id)
            if stepped is None:
                await asyncio.sleep(0.1)
            task = await desk.room.tasks.find(desk.environment, task.id)
            progress.update(bar, completed=task.scanned, description=task.note or str(task.kind))
    return task


def _change(
    place: Place,
    verb: Literal["pause", "resume", "cancel"],
    task_id: str,
) -> None:
    async def work(desk: Desk) -> Task:
        changes = {"pause": desk.room.tasks.pause, "resume": desk.room.tasks.resume}
        change = changes.get(verb, desk.room.tasks.cancel)
        return await change(desk.environment, task_id, by=ACTOR)

    typer.echo(f"{task_id} {at_desk(place, work).state}")
