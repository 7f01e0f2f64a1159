"""`weir pipeline metrics …`: switch metrics off and on, and show the switch."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from weir.cli.options import DataDirOption, JsonOption, settings_with
from weir.cli.output import print_result, shown_time
from weir.cli.running import run_until_done, say
from weir.stores.urls import resolve_urls

app = typer.Typer(
    no_args_is_help=True, help="The switch of the metrics: whether queues and processes emit events."
)

# The command may wait longer than a request: it reads the odometers of every queue.
_PATIENCE_S = 60.0

OffReason = Annotated[
    str, typer.Option("--reason", help="Why metrics are off; shown wherever figures are missing.")
]
OnReason = Annotated[str, typer.Option("--reason", help="Why metrics are on again.")]


@app.command()
def off(reason: OffReason, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Switch metrics off in all shards. The charts will lack the time until they are on again."""
    _change(on=False, reason=reason, data_dir=data_dir, as_json=as_json)


@app.command()
def on(reason: OnReason = "", data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Switch metrics on again in all shards."""
    _change(on=True, reason=reason, data_dir=data_dir, as_json=as_json)


@app.command()
def status(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Show whether metrics are off, since when, who switched them and why, and the loss so far."""
    _show(_with_switching(data_dir, lambda switching: switching.look()), as_json=as_json)


def _change(*, on: bool, reason: str, data_dir: Path | None, as_json: bool) -> None:
    by = f"command:{getpass.getuser()}@{socket.gethostname()}"
    view = _with_switching(data_dir, lambda switching: switching.change(on=on, by=by, reason=reason))
    _show(view, as_json=as_json)
    if view is not None:
        view.state.require_all()


def _show(view: Any, *, as_json: bool) -> None:
    from weir.pipeline.switching import switch_document

    if view is not None:
        document = switch_document(view)
        print_result(document, "\n".join(_lines(document)), as_json=as_json)


def _lines(found: Mapping[str, Any]) -> list[str]:
    lines = [f"metrics are {'off' if found['off'] else 'on'}{_since(found)}"] if found["shards"] else []
    if found["mixed"]:
        names = ", ".join(str(one["shard"]) for one in found["shards"] if one["off"])
        lines.append(f"only shards {names} are off, because a switch was interrupted; switch again")
    lines += [f"shard {one['shard']} does not answer: {one['error']}" for one in found["silent"]]
    if found["loss"] is not None:
        lines.append(_loss_line(found["loss"]))
    if found["shards"] and not found["recorded"]:
        lines.append("ClickHouse does not know the span yet; the pipeline records it when it can")
    return lines


def _since(found: Mapping[str, Any]) -> str:
    if found["since_ms"] is None:
        return "; they were never off"
    text = f" since {shown_time(found['since_ms'])}, switched by {found['by']}"
    return f"{text}: {found['reason']}" if found["reason"] else text


def _loss_line(loss: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{count:,} {name}" for name, count in loss["counts"].items()) or "nothing"
    if loss["source"] == "audit":
        return f"lost in the last span, as far as audited: {counts}"
    return f"lost so far: {counts}" if loss["landed"] else f"lost so far, or on the way: {counts}"


def _with_switching(data_dir: Path | None, act: Callable[[Any], Awaitable[Any]]) -> Any:
    from weir.serve.switching import opened_switching
    from weir.stores.ready import redis_ready

    settings = settings_with(data_dir)
    urls = resolve_urls(settings)

    async def work() -> Any:
        await redis_ready(urls.redis, say=say)
        async with opened_switching(settings, urls, patience_s=_PATIENCE_S) as switching:
            return await act(switching)

    return run_until_done(work(), doing="waiting for the shards")
