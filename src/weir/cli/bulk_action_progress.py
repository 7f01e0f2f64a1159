"""Begins bulk actions, which the servers run; follows them with a progress bar, and prints what they did."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from weir.cli.api import ApiScope, ApiSession, ask_api
from weir.cli.output import print_json
from weir.deadletters.bulk_action_states import BulkActionState

_LOOK_S = 0.2
_DONE = {"redrive": "sent back", "purge": "deleted", "cancel": "cancelled", "replay": "replayed"}
BulkActionDocument = dict[str, Any]


def begin_action(
    scope: ApiScope, path: Sequence[str], body: dict[str, Any], *, detach: bool, as_json: bool
) -> None:
    """Begin a bulk action, follow it unless detached, and print what it did; exit 1 if it did not succeed."""

    async def work(api: ApiSession) -> BulkActionDocument:
        action: BulkActionDocument = await api.post(*path, body=body)
        return action if detach else await _follow(api, action, quiet=as_json)

    action: BulkActionDocument | None = ask_api(scope, work, doing=None)
    if action is None:
        typer.echo("stopped watching; the servers go on with the task, see `weir dlq task list`", err=True)
        raise typer.Exit(130)
    if as_json:
        print_json(action)
    else:
        typer.echo(f"{action['id']} {action['state']}: {summary_of(action)}")
    if action["state"] in (BulkActionState.STOPPED_BY_CANARY, BulkActionState.FAILED):
        raise typer.Exit(1)


def summary_of(action: BulkActionDocument) -> str:
    """One line on what a bulk action did."""
    text = f"{action['matched']:,} matched of {action['scanned']:,}"
    if not action["dry_run"]:
        text += f", {action['done']:,} {_DONE[action['kind']]}"
    if action["skipped"]:
        text += f", {action['skipped']:,} skipped ({action['problem']})"
    elif action["problem"]:
        text += f"; {action['problem']}"
    if action["died_again"]:
        text += f", {action['died_again']:,} died again"
    return f"{text}; {action['note']}" if action["note"] else text


async def _follow(api: ApiSession, action: BulkActionDocument, *, quiet: bool) -> BulkActionDocument:
    """Look at the action until it is over or paused, and draw how far it is."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as progress:
        bar = progress.add_task(action["kind"], total=action["expected"])
        while BulkActionState(action["state"]).live:
            await asyncio.sleep(_LOOK_S)
            action = await api.get("dlq", "tasks", action["id"])
            progress.update(bar, completed=action["scanned"], description=action["note"] or action["kind"])
    return action
