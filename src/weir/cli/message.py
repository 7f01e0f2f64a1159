"""`weir message`: list messages, show what happened to one and why it waits, move and cancel messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, ApiSession, about_environment, ask_api
from weir.cli.message_cancel import cancel_command
from weir.cli.message_options import (
    HeaderOption,
    KeyOption,
    MessageIdArgument,
    StateOption,
    TextOption,
)
from weir.cli.options import JsonOption, given, moment_ms
from weir.cli.output import Columns, flat_fields, print_items, print_json, print_result, shown_time
from weir.cli.tables import OutputTable, id_column, long_column, number_column
from weir.errors import InvalidInput
from weir.model.durations import duration_ms
from weir.model.wording import duration

app = typer.Typer(no_args_is_help=True)


@app.command("list")
@about_environment
def list_messages(
    scope: ApiScope,
    queue: Annotated[str, typer.Argument(help="Name of the queue.")],
    state: StateOption = "ready",
    key: KeyOption = None,
    header: HeaderOption = None,
    text: TextOption = None,
    cursor: Annotated[str | None, typer.Option(help="Continue a list at the cursor that it printed.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Show at most this many.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List the messages of a queue in one state, with the beginning of each payload."""
    query = {"state": state, "key": key, "header": header, "text": text, "cursor": cursor, "limit": limit}
    found = ask_api(scope, lambda api: api.get("queues", queue, "messages", **query))
    if as_json:
        print_json(found)
        return
    if found["state"] == "queued":
        print_items(found["operations"], _OPERATION_COLUMNS, as_json=False)
    else:
        print_items(found["items"], _COLUMNS, as_json=False)
    typer.echo(_counted(found["counts"]), err=True)
    if found["next_cursor"]:
        typer.echo(f"there is more; go on with `--cursor {found['next_cursor']}`", err=True)


@app.command()
@about_environment
def show(scope: ApiScope, message_id: MessageIdArgument, as_json: JsonOption = False) -> None:
    """Show a message: its state or how it ended, and its timeline with attempts and errors."""
    found = ask_api(scope, lambda api: api.get("messages", message_id))
    if as_json:
        print_json(found)
        return
    known = found["message"] or found["life"]
    if known is not None:
        fields = OutputTable("what", "value")
        for name, value in flat_fields(known):
            if value:
                fields.add_row(name, value)
        fields.print()
    _print_timeline(found)
    _print_relatives(found)
    if found["trace_id"]:
        typer.echo(f"trace {found['trace_id']}" + (f": {found['trace_url']}" if found["trace_url"] else ""))
    if found["state"] == "landing":
        typer.echo("if it ended just now, its life will be here in a second or two; ask again", err=True)
    if found["see"]:
        typer.echo(f"see {found['see']}", err=True)


@app.command()
@about_environment
def find(
    scope: ApiScope,
    queue: Annotated[str, typer.Argument(help="Name of the queue.")],
    idempotency_key: Annotated[str, typer.Option(help="Idempotency key that the message was pushed with.")],
    as_json: JsonOption = False,
) -> None:
    """Print the id of the message that was pushed with an idempotency key."""
    query = {"idempotency_key": idempotency_key}
    found = ask_api(scope, lambda api: api.get("queues", queue, "messages", "find", **query))
    print_result(found, found["message_id"], as_json=as_json)


@app.command()
@about_environment
def why(scope: ApiScope, message_id: MessageIdArgument, as_json: JsonOption = False) -> None:
    """Say why a message waits, or why it waited before it was handed out or ended."""
    found = ask_api(scope, lambda api: api.get("messages", message_id, "why"))
    if as_json:
        print_json(found)
        return
    table = OutputTable(
        "reason",
        number_column("waited"),
        long_column("in words"),
        title=f"{found['message_id']} in {found['queue']}: {found['state']}",
    )
    for part in found["parts"]:
        table.add_row(part["reason"].replace("_", " "), duration(part["waited_ms"]), part["text"])
    table.print()
    behind = f", behind {found['behind_id']}" if found["behind_id"] else ""
    typer.echo(f"waited {duration(found['waited_ms'])} in all{behind}", err=True)


@app.command()
@about_environment
def run(scope: ApiScope, message_id: MessageIdArgument, as_json: JsonOption = False) -> None:
    """Make a scheduled or retrying message available now."""
    _touch(scope, message_id, "run", f"{message_id} is available now", as_json=as_json)


@app.command()
@about_environment
def reschedule(
    scope: ApiScope,
    message_id: MessageIdArgument,
    delay: Annotated[str | None, typer.Option("--in", help="Delay from now, such as `5m` or `2h`.")] = None,
    at: Annotated[
        str | None,
        typer.Option(help="New time, such as `2027-01-31T09:00:00+01:00`; UTC if it names no zone."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a waiting message available later or earlier: `weir message reschedule ID --in 5m`."""
    if (delay is None) is (at is None):
        raise InvalidInput("say when: give either `--in` or `--at`")
    body = given(
        delay_ms=None if delay is None else duration_ms(delay), at_ms=None if at is None else moment_ms(at)
    )
    _touch(scope, message_id, "reschedule", f"{message_id} is rescheduled", body=body, as_json=as_json)


@app.command()
@about_environment
def priority(
    scope: ApiScope,
    message_id: MessageIdArgument,
    value: Annotated[
        int, typer.Argument(min=0, max=9, metavar="PRIORITY", help="New priority; 9 is served first.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Change the priority of a waiting message, so that it is served earlier or later than others."""
    body = {"priority": value}
    _touch(scope, message_id, "priority", f"{message_id} has priority {value}", body=body, as_json=as_json)


app.command("cancel")(cancel_command)


def _touch(
    scope: ApiScope, message_id: str, verb: str, text: str, *, body: object = None, as_json: bool
) -> None:
    async def touch(api: ApiSession) -> dict[str, Any]:
        return await api.post("messages", message_id, verb, body=body)

    print_result(ask_api(scope, touch), text, as_json=as_json)


def _print_timeline(found: dict[str, Any]) -> None:
    table = OutputTable(
        "time",
        "what",
        long_column("details"),
        title=f"{found['message_id']} in {found['queue']}: {found['state']}",
    )
    for moment in found["items"]:
        at = datetime.fromtimestamp(moment["at_ms"] / 1000, UTC).isoformat(timespec="milliseconds")
        details = ", ".join(f"{name} {value}" for name, value in moment["details"].items())
        table.add_row(at, moment["what"], details)
    table.print()


def _print_relatives(found: dict[str, Any]) -> None:
    relatives = [("parent", found["parent"])] if found["parent"] else []
    relatives += [("child", child) for child in found["children"]]
    if not relatives:
        return
    table = OutputTable("relative", "kind", long_column("queue"), id_column("message"), long_column("made"))
    for word, one in relatives:
        table.add_row(word, one["kind"], one["queue"] or "", one["message_id"], shown_time(one["at_ms"]))
    table.print()
    if found["more_children"]:
        typer.echo("it has more children than these", err=True)


def _counted(counts: dict[str, int | None]) -> str:
    """The states that hold messages, each with the number of its messages."""
    names = ("ready", "scheduled", "retrying", "blocked", "leased", "queued")
    return ", ".join(f"{counts[name]:,} {name}" for name in names if counts[name]) or "no messages"


_COLUMNS: Columns = {
    id_column(): "message_id",
    long_column("key"): "key",
    number_column("priority"): "priority",
    number_column("attempts"): "attempts",
    long_column("available"): lambda row: shown_time(row["available_at_ms"]),
    long_column("holder"): lambda row: row["held"] and row["held"]["consumer"],
    long_column("payload"): "preview",
    long_column("error"): "last_error",
}
_OPERATION_COLUMNS: Columns = {
    id_column("operation"): "id",
    "status": "status",
    long_column("key"): "partition",
    number_column("messages"): "messages",
    long_column("created"): lambda row: shown_time(row["created_ms"]),
    long_column("error"): "error_message",
}
