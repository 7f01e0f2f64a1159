"""Begins bulk actions, which the servers run; follows them with a progress bar, and prints what they did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from weir.cli.api import ApiScope, ApiSession, ask_api
from weir.cli.output import print_json
from weir.deadletters.bulk_action_states import BulkActionState
from weir.errors import InvalidInput

_LOOK_S = 0.2
_SAMPLES = 3
_WIDTH = 200
"""Characters of an error or a payload that a sample shows."""
_DONE = {"redrive": "sent back", "purge": "deleted", "cancel": "cancelled", "replay": "replayed"}
BulkActionDocument = dict[str, Any]


def begin_action(
    scope: ApiScope, path: Sequence[str], body: dict[str, Any], *, detach: bool, as_json: bool
) -> None:
    """Begin a bulk action, follow it unless detached, and print what it did; exit 1 if it did not succeed."""
    _print(_run(scope, path, body, detach=detach, quiet=as_json), as_json=as_json)


def show_dry_run(
    scope: ApiScope,
    path: Sequence[str],
    body: dict[str, Any],
    *,
    as_json: bool = False,
    to_stderr: bool = False,
) -> BulkActionDocument:
    """Do a dry run and print what it counted, with some samples before and after the patch."""
    action = _run(scope, path, body, detach=False, quiet=as_json)
    samples = ask_api(scope, lambda api: api.get("dlq", "tasks", action["id"], "samples"))["items"]
    if as_json:
        print_json(action | {"shown": samples})
    else:
        for sample in samples[:_SAMPLES]:
            typer.echo(_sample_lines(sample, patched=body.get("patch") is not None), err=to_stderr)
    _print(action, as_json=None if as_json else False, to_stderr=to_stderr)
    return action


def _run(
    scope: ApiScope, path: Sequence[str], body: dict[str, Any], *, detach: bool, quiet: bool
) -> BulkActionDocument:
    async def work(api: ApiSession) -> BulkActionDocument:
        action: BulkActionDocument = await api.post(*path, body=body)
        return action if detach else await _follow(api, action, quiet=quiet)

    action: BulkActionDocument | None = ask_api(scope, work, doing=None)
    if action is None:
        typer.echo("stopped watching; the servers go on with the task, see `weir dlq task list`", err=True)
        raise typer.Exit(130)
    return action


def _print(action: BulkActionDocument, *, as_json: bool | None, to_stderr: bool = False) -> None:
    """Print an action, unless `as_json` is None; exit 1 if it did not succeed."""
    if as_json:
        print_json(action)
    elif as_json is not None:
        typer.echo(f"{action['id']} {action['state']}: {summary_of(action)}", err=to_stderr)
    if action["state"] in (BulkActionState.STOPPED_BY_CANARY, BulkActionState.FAILED):
        raise typer.Exit(1)
    if action["dry_run"] and action["state"] != BulkActionState.COMPLETED:
        raise typer.Exit(1)


def _sample_lines(sample: dict[str, Any], *, patched: bool) -> str:
    lines = [f"{sample['queue']} {sample['id']}: {_short(sample['error'])}", f"  {_json(sample['payload'])}"]
    if sample["problem"]:
        lines.append(f"  would be skipped: {sample['problem']}")
    elif patched:
        lines.append(f"  becomes {_json(sample['patched'])}")
    return "\n".join(lines)


def _json(value: Any) -> str:
    return _short(json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else text[:_WIDTH] + "…"


def selected(
    match: dict[str, Any], *, everything: bool, dry_run: bool, from_dry_run: str | None
) -> dict[str, Any]:
    """The members of a request that say what is meant: a filter, or the dry run that counted it."""
    if from_dry_run is None:
        return {"filter": match, "all": everything, "dry_run": dry_run}
    if match or everything or dry_run:
        raise InvalidInput(
            "`--from-dry-run` takes what was counted; leave out `--dry-run`, `--all` and what to match"
        )
    return {"from_dry_run": from_dry_run}


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
