"""`weir dlq redrive` and its kin: tasks begun, followed with a progress bar, paused and resumed."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from weir.cli.api import ApiScope, ApiSession, about_environment, ask_api
from weir.cli.options import JsonOption, with_options
from weir.cli.output import Columns, print_fields, print_items, print_json
from weir.cli.tables import id_column, long_column
from weir.deadletters.bulk_actions import BulkActionState
from weir.errors import InvalidInput

task_app = typer.Typer(no_args_is_help=True, help="Tasks: redrives and purges, and how far they are.")

_LOOK_S = 0.2
TaskDocument = dict[str, Any]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count, and change nothing.")]
Rate = Annotated[float | None, typer.Option(help="Take at most so many per second.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
Detach = Annotated[bool, typer.Option("--detach", help="Return at once; the servers do the work.")]
TaskId = Annotated[str, typer.Argument(help="Id of the task, as `weir dlq task list` shows it.")]


def _filter(
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Take only this queue.")] = None,
    fingerprint: Annotated[str | None, typer.Option(help="Take only this group of errors.")] = None,
    where: Annotated[
        str | None, typer.Option(help="CEL over a dead letter, such as `payload.amount > 100`.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="Why it died: attempts, rejected, expired or lapsed.")
    ] = None,
    died_from: Annotated[
        int | None, typer.Option(help="Died at or after this, in ms since the epoch.")
    ] = None,
    died_to: Annotated[
        int | None, typer.Option(help="Died at or before this, in ms since the epoch.")
    ] = None,
) -> dict[str, Any]:
    """The filter that the options say; empty: every dead letter of the environment."""
    options = {
        "queue": queue,
        "fingerprint": fingerprint,
        "reason": reason,
        "died_from_ms": died_from,
        "died_to_ms": died_to,
        "expression": where,
    }
    return {name: value for name, value in options.items() if value is not None}


@about_environment
@with_options(chosen=_filter)
def redrive(
    scope: ApiScope,
    chosen: dict[str, Any],
    dry_run: DryRun = False,
    rate: Rate = None,
    canary: Annotated[int, typer.Option(min=0, max=1_000, help="Send so many first and wait for them.")] = 0,
    tolerance: Annotated[float, typer.Option(help="Share of the canary that may die again.")] = 0.0,
    patch: Annotated[str | None, typer.Option(help="CEL; its answer is merged into each payload.")] = None,
    yes: Yes = False,
    detach: Detach = False,
    letter_id: Annotated[
        str | None,
        typer.Option("--id", help="Send this one back at once, and print the id of the new message."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters back to their queues."""
    if letter_id is not None:
        _redrive_one(scope, chosen, letter_id, as_json=as_json)
        return
    if not chosen and not dry_run and not yes:
        _ask(f"Send the dead letters of every queue of {_named(scope)} back?")
    body = {**_body(chosen, dry_run, rate), "canary": canary, "canary_tolerance": tolerance, "patch": patch}
    _begin(scope, "redrives", body, detach=detach, as_json=as_json)


@about_environment
@with_options(chosen=_filter)
def purge(
    scope: ApiScope,
    chosen: dict[str, Any],
    everything: Annotated[
        bool, typer.Option("--include-unexhausted", help="Delete also those with attempts left.")
    ] = False,
    dry_run: DryRun = False,
    rate: Rate = None,
    yes: Yes = False,
    detach: Detach = False,
    as_json: JsonOption = False,
) -> None:
    """Delete dead letters for good."""
    if not dry_run and not yes:
        every = f"the dead letters of every queue of {_named(scope)}"
        _ask(f"Delete {'these dead letters' if chosen else every} for good?")
    body = {**_body(chosen, dry_run, rate), "include_unexhausted": everything}
    _begin(scope, "purges", body, detach=detach, as_json=as_json)


@task_app.command("list")
@about_environment
def list_tasks(
    scope: ApiScope,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Show at most so many.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the newest redrives and purges."""
    found = ask_api(scope, lambda api: api.get("dlq", "tasks", limit=limit))["items"]
    columns: Columns = {
        id_column(): "id",
        "kind": lambda task: f"{task['kind']} (dry run)" if task["dry_run"] else task["kind"],
        "state": "state",
        long_column("what it did"): summed_up,
    }
    print_items(found, columns, as_json=as_json)


@task_app.command()
@about_environment
def show(scope: ApiScope, task_id: TaskId, as_json: JsonOption = False) -> None:
    """Show what a redrive or purge was asked to do, and how far it is."""
    print_fields(ask_api(scope, lambda api: api.get("dlq", "tasks", task_id)), as_json=as_json)


@task_app.command()
@about_environment
def pause(scope: ApiScope, task_id: TaskId) -> None:
    """Hold a task; what it did stays done."""
    _change(scope, "pause", task_id)


@task_app.command()
@about_environment
def resume(scope: ApiScope, task_id: TaskId) -> None:
    """Go on with a task where it was."""
    _change(scope, "resume", task_id)


@task_app.command()
@about_environment
def cancel(scope: ApiScope, task_id: TaskId) -> None:
    """End a task; what it did stays done."""
    _change(scope, "cancel", task_id)


def _redrive_one(scope: ApiScope, chosen: dict[str, Any], letter_id: str, *, as_json: bool) -> None:
    if chosen.keys() != {"queue"}:
        raise InvalidInput(
            "`--id` goes with `--queue`, the queue of the dead letter, and with no other filter"
        )
    query = {"queue": chosen["queue"]}
    done = ask_api(scope, lambda api: api.post("dlq", "letters", letter_id, "redrive", **query))
    if as_json:
        print_json(done)
    else:
        typer.echo(done["new_message_id"])


def _ask(question: str) -> None:
    """End the command unless the answer is yes. The question is not part of the output."""
    typer.confirm(question, abort=True, err=True)


def _named(scope: ApiScope) -> str:
    return f"`{scope.environment}`" if scope.environment else "the environment"


def _body(chosen: dict[str, Any], dry_run: bool, rate: float | None) -> dict[str, Any]:
    """An empty filter means everything, which has to be said; the command has asked about it."""
    return {"filter": chosen, "all": not chosen, "dry_run": dry_run, "rate_per_s": rate}


def _begin(scope: ApiScope, kind: str, body: dict[str, Any], *, detach: bool, as_json: bool) -> None:
    async def work(api: ApiSession) -> TaskDocument:
        task = await api.post("dlq", kind, body=body)
        return task if detach else await _followed(api, task, quiet=as_json)

    task: TaskDocument | None = ask_api(scope, work)
    if task is None:
        typer.echo("stopped looking; the servers go on with the task, see `weir dlq task list`", err=True)
        raise typer.Exit(130)
    if as_json:
        print_json(task)
    else:
        typer.echo(f"{task['id']} {task['state']}: {summed_up(task)}")
    if task["state"] in (BulkActionState.STOPPED_BY_CANARY, BulkActionState.FAILED):
        raise typer.Exit(1)


def summed_up(task: TaskDocument) -> str:
    """One line on what a task did."""
    text = f"{task['matched']:,} matched of {task['scanned']:,}"
    if not task["dry_run"]:
        text += f", {task['done']:,} {'deleted' if task['kind'] == 'purge' else 'sent back'}"
    if task["skipped"]:
        text += f", {task['skipped']:,} skipped ({task['problem']})"
    if task["died_again"]:
        text += f", {task['died_again']:,} died again"
    return f"{text}; {task['note']}" if task["note"] else text


async def _followed(api: ApiSession, task: TaskDocument, *, quiet: bool) -> TaskDocument:
    """Look at the task until it is over or paused, and draw how far it is; the servers do the work."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as progress:
        bar = progress.add_task(task["kind"], total=task["expected"])
        while BulkActionState(task["state"]).live:
            await asyncio.sleep(_LOOK_S)
            task = await api.get("dlq", "tasks", task["id"])
            progress.update(bar, completed=task["scanned"], description=task["note"] or task["kind"])
    return task


def _change(scope: ApiScope, verb: str, task_id: str) -> None:
    changed = ask_api(scope, lambda api: api.post("dlq", "tasks", task_id, verb))
    typer.echo(f"{task_id} {changed['state']}")
