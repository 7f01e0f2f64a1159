"""`weir queue log`: read the log of a queue, and send messages of it into a queue."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, ApiSession, about_environment, ask_api
from weir.cli.bulk_action_progress import begin_action, selected
from weir.cli.message_options import KeyOption
from weir.cli.options import (
    CanaryOption,
    DetachOption,
    DryRunOption,
    FromDryRunOption,
    JsonOption,
    given,
    moment_ms,
)
from weir.cli.output import Columns, print_items, print_json, shown_time
from weir.cli.tables import id_column, long_column, number_column
from weir.model.clock import SystemClock
from weir.model.durations import written_ms

app = typer.Typer(
    no_args_is_help=True, help="The log of a queue: messages that ended, with their payloads and headers."
)

LogArgument = Annotated[str, typer.Argument(help="Name of the queue that keeps the log.")]
WhereOption = Annotated[
    str | None,
    typer.Option("--where", help="Only matches of this CEL expression, such as `outcome == 'dead'`."),
]
_MOMENT = "a time such as `2027-01-31T09:00`, or a time ago such as `2h`"
_COLUMNS: Columns = {
    number_column("number"): "number",
    id_column("message"): "id",
    "ended": lambda row: shown_time(row["life"]["ended_at_ms"]),
    "outcome": lambda row: row["life"]["outcome"],
    "key": lambda row: row["life"]["key"] or "",
    number_column("attempts"): lambda row: row["life"]["attempts"],
    long_column("payload"): lambda row: _payload(row),
}


@app.command()
@about_environment
def read(
    scope: ApiScope,
    queue: LogArgument,
    begin: Annotated[str | None, typer.Option("--from", help=f"Only ends at or after {_MOMENT}.")] = None,
    end: Annotated[str | None, typer.Option("--to", help=f"Only ends before {_MOMENT}.")] = None,
    key: KeyOption = None,
    where: WhereOption = None,
    cursor: Annotated[str | None, typer.Option(help="Continue a list at the cursor that it printed.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Show at most this many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Read the log of a queue, oldest first, by time, key or an expression."""
    query = given(key=key, where=where, **_span(begin, end, names=("from", "to")))
    page = ask_api(scope, lambda api: _read(api, queue, query, cursor=cursor, limit=limit))
    if as_json:
        print_json(page)
        return
    print_items(page["items"], _COLUMNS, as_json=False)
    for gap in page["gaps"]:
        typer.echo(f"messages may be missing: {gap['reason']}", err=True)
    if page["log_ms"] is None:
        typer.echo(f"`{queue}` keeps no log now; `weir queue change {queue} --log 30d` begins one", err=True)
    if page["next_cursor"]:
        typer.echo(f"there is more; go on with `--cursor {page['next_cursor']}`", err=True)


@app.command()
@about_environment
def replay(
    scope: ApiScope,
    queue: LogArgument,
    into: Annotated[str, typer.Option("--into", help="Queue that the messages are sent into.")],
    begin: Annotated[str | None, typer.Option("--from", help=f"Only ends at or after {_MOMENT}.")] = None,
    end: Annotated[str | None, typer.Option("--to-time", help=f"Only ends before {_MOMENT}.")] = None,
    key: KeyOption = None,
    where: WhereOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Replay the whole log.")] = False,
    dry_run: DryRunOption = False,
    from_dry_run: FromDryRunOption = None,
    rate: Annotated[float | None, typer.Option(help="Send at most this many per second.")] = None,
    canary: CanaryOption = 0,
    tolerance: Annotated[float, typer.Option(help="Share of the canary that may die.")] = 0.0,
    detach: DetachOption = False,
    as_json: JsonOption = False,
) -> None:
    """Send messages of a log into a queue, each once; the servers do the work."""
    span = _span(begin, end, names=("from_ms", "to_ms"))
    match = given(key=key, expression=where, **span)
    body = {
        "into": into,
        **selected(match, everything=everything, dry_run=dry_run, from_dry_run=from_dry_run),
        "rate_per_s": rate,
        "canary": canary,
        "canary_tolerance": tolerance,
    }
    begin_action(scope, ("queues", queue, "log", "replays"), body, detach=detach, as_json=as_json)


async def _read(
    api: ApiSession, queue: str, query: dict[str, Any], *, cursor: str | None, limit: int
) -> dict[str, Any]:
    """Read pages until enough was found or the log ends. A page may be empty although the log goes on."""
    found: list[dict[str, Any]] = []
    while True:
        wanted = min(limit - len(found), 200)
        page: dict[str, Any] = await api.get("queues", queue, "log", cursor=cursor, limit=wanted, **query)
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None or len(found) >= limit:
            return {**page, "items": found}


def _span(begin: str | None, end: str | None, *, names: tuple[str, str]) -> dict[str, int]:
    asked = zip(names, (begin, end), strict=True)
    return {name: _moment_ms(text) for name, text in asked if text is not None}


def _moment_ms(text: str) -> int:
    """The moment that a text gives, either as a time or as a duration before now."""
    ago_ms = written_ms(text)
    return moment_ms(text) if ago_ms is None else SystemClock().now_ms() - ago_ms


def _payload(row: dict[str, Any]) -> str:
    if row["left_out"]:
        return "(left out)"
    encoded = row["payload_base64"]
    return json.dumps(row["payload"], ensure_ascii=False) if encoded is None else f"base64 {encoded}"
