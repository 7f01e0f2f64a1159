"""`weir queue`: show queues, change their promises, and push, pop and settle messages, through the API."""

from __future__ import annotations

import base64
import json
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from weir.cli import queue_log
from weir.cli.api import ApiScope, ApiSession, RefusedByApi, about_environment, ask_api
from weir.cli.options import JsonOption, given, with_options
from weir.cli.output import Columns, print_fields, print_items, print_json, print_result
from weir.cli.tables import id_column, number_column
from weir.errors import Conflict, InvalidInput
from weir.model.durations import duration_ms
from weir.model.limits import MAX_PRIORITY
from weir.model.wording import amount, duration
from weir.spec.ir import Ordering, TraceMode

app = typer.Typer(no_args_is_help=True)
app.add_typer(queue_log.app, name="log")

QueueArgument = Annotated[str, typer.Argument(help="Name of the queue.")]
MessageArgument = Annotated[str, typer.Argument(help="Id of the message, as `pop` printed it.")]
LeaseArgument = Annotated[str, typer.Argument(help="Token of the lease, as `pop` printed it.")]
_PRIORITIES = f"0 to {MAX_PRIORITY}; {MAX_PRIORITY} is served first"
LeaseOption = Annotated[str | None, typer.Option("--lease", help="How long a lease lasts, such as `30s`.")]


class DeadLetters(StrEnum):
    """What becomes of the dead letters of a queue that is deleted."""

    KEEP = "keep"
    PURGE = "purge"


def _promises(
    ordering: Annotated[Ordering | None, typer.Option(help="How messages are ordered.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Messages that may be leased at once.")] = None,
    max_depth: Annotated[int | None, typer.Option(help="Messages that may wait; more are refused.")] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Attempts before a message dies.")] = None,
    lease: LeaseOption = None,
    priority: Annotated[int | None, typer.Option(help=f"Priority of the messages: {_PRIORITIES}.")] = None,
    log: Annotated[
        str | None,
        typer.Option(
            help="How long messages that ended are kept with their payloads, such as `30d`; or `none`."
        ),
    ] = None,
    trace: Annotated[
        TraceMode | None,
        typer.Option(help="Whether a handler begins a linked trace or joins that of its message."),
    ] = None,
) -> dict[str, Any]:
    """The promises that the options give, as the API takes them."""
    lease_ms = None if lease is None else duration_ms(lease)
    return {
        **_log_ms(log),
        **given(
            ordering=ordering and ordering.value,
            concurrency=concurrency,
            priority=priority,
            trace=trace and trace.value,
        ),
        "retention": given(max_depth=max_depth),
        "delivery": given(max_attempts=max_attempts, lease_ms=lease_ms),
    }


def _log_ms(log: str | None) -> dict[str, int | None]:
    if log is None:
        return {}
    return {"log_ms": None if log == "none" else duration_ms(log)}


@app.command("list")
@about_environment
def list_queues(scope: ApiScope, as_json: JsonOption = False) -> None:
    """List the queues of an environment with their state right now."""
    queues = ask_api(scope, lambda api: api.get("queues"))["items"]
    columns: Columns = {
        id_column("queue"): "name",
        number_column("waiting"): "depth",
        number_column("delayed"): "delayed",
        number_column("running"): "running",
        number_column("limit"): "limit",
        number_column("oldest"): lambda row: duration(row["oldest_age_ms"]),
        "paused": lambda row: "paused" if row["paused"] else "",
    }
    print_items(queues, columns, as_json=as_json)


@app.command()
@about_environment
def show(scope: ApiScope, queue: QueueArgument, as_json: JsonOption = False) -> None:
    """Show one queue: its gauges, its lifetime totals and its promises."""
    found = ask_api(scope, lambda api: api.get("queues", queue))
    if as_json:
        print_json(found)
        return
    totals, promises = found.pop("totals"), found.pop("definition") or {}
    print_fields({**found, "in all": totals, "promises": promises}, as_json=False)


@app.command()
@about_environment
@with_options(promises=_promises)
def create(scope: ApiScope, promises: dict[str, Any], queue: QueueArgument) -> None:
    """Create a queue to try something out; describe lasting queues in a spec."""

    async def make(api: ApiSession) -> None:
        if await _find(api, queue) is not None:
            raise InvalidInput(f"the queue `{queue}` exists; change it with `weir queue change`")
        await api.put("queues", queue, body=promises)

    ask_api(scope, make)


@app.command()
@about_environment
@with_options(promises=_promises)
def change(scope: ApiScope, promises: dict[str, Any], queue: QueueArgument) -> None:
    """Change the promises of a queue; options that are left out stay as they are."""
    ask_api(scope, lambda api: api.send("PATCH", "queues", queue, body=promises))


@app.command()
@about_environment
def delete(
    scope: ApiScope,
    queue: QueueArgument,
    dead_letters: Annotated[
        DeadLetters | None,
        typer.Option(
            help="What becomes of its dead letters: `keep` them to be read and exported, or `purge` them all."
        ),
    ] = None,
) -> None:
    """Delete an empty queue. If it has dead letters, say what becomes of them."""

    async def remove(api: ApiSession) -> None:
        try:
            await api.delete("queues", queue, dead_letters=dead_letters and dead_letters.value)
        except RefusedByApi as error:
            dead = error.problem.get("dead_letters")
            if dead is None:
                raise
            raise Conflict(
                f"queue `{queue}` has {amount(dead, 'dead letter')}; redrive them first, or say what becomes "
                "of them with `--dead-letters keep` or `--dead-letters purge`"
            ) from None

    ask_api(scope, remove)


@app.command()
@about_environment
def push(
    scope: ApiScope,
    queue: QueueArgument,
    payload: Annotated[
        str, typer.Argument(help="Payload of the message, as JSON; `-` reads standard input.")
    ],
    raw: Annotated[
        bool, typer.Option("--raw", help="Send the payload as it is; it need not be JSON.")
    ] = False,
    key: Annotated[str | None, typer.Option(help="Key that orders the message in a `per_key` queue.")] = None,
    priority: Annotated[
        int | None, typer.Option(help=f"Priority: {_PRIORITIES}. Left out: that of the queue.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(help="Hand the message out only after this time, such as `30s` or `2h`.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="A push with the same key is taken once per window of the queue.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Push one message into a queue."""
    data = sys.stdin.buffer.read() if payload == "-" else payload.encode()
    if not raw:
        _check_json(data)
    item = {
        "queue": queue,
        # Base64 keeps the bytes as they were typed; reading and writing JSON again could change them.
        "payload_base64": base64.b64encode(data).decode(),
        "headers": None if raw else {"content-type": "application/json"},
        "key": key,
        "priority": priority,
        "delay_ms": None if delay is None else duration_ms(delay),
        "idempotency_key": idempotency_key,
    }
    answer = ask_api(scope, lambda api: api.post("push", body={"items": [given(**item)]}))["items"][0]
    print_result(answer, f"{answer.get('id') or ''} {answer['status']}".strip(), as_json=as_json)


@app.command()
@about_environment
def pop(
    scope: ApiScope,
    queue: QueueArgument,
    limit: Annotated[int, typer.Option(help="Take at most this many messages.")] = 1,
    lease: LeaseOption = None,
    wait: Annotated[
        str | None, typer.Option(help="Wait at most this long for the first message, such as `5s`.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Take messages under leases; `ack` or `nack` them with the token printed here."""
    body = {"queue": queue, "limit": limit, "wait_ms": 0 if wait is None else duration_ms(wait)}
    if lease is not None:
        body["lease_ms"] = duration_ms(lease)
    messages = ask_api(scope, lambda api: api.post("pop", body=body), doing="waiting for messages")[
        "messages"
    ]
    lines = (f"{one['id']} {one['lease']} attempt {one['attempt']}: {_text(one)}" for one in messages)
    print_result(messages, "\n".join(lines), as_json=as_json)


@app.command()
@about_environment
def ack(scope: ApiScope, queue: QueueArgument, message_id: MessageArgument, lease: LeaseArgument) -> None:
    """Settle a message as done: it is removed for good."""
    body = {"queue": queue, "id": message_id, "lease": lease}
    typer.echo(ask_api(scope, lambda api: api.post("ack", body=body))["status"])


@app.command()
@about_environment
def nack(
    scope: ApiScope,
    queue: QueueArgument,
    message_id: MessageArgument,
    lease: LeaseArgument,
    error: Annotated[str, typer.Option(help="Text of the error, for the record.")] = "",
) -> None:
    """Settle a message as failed: it waits for its next attempt, or dies after the last."""
    body = {"queue": queue, "id": message_id, "lease": lease, "error": error}
    typer.echo(ask_api(scope, lambda api: api.post("nack", body=body))["status"])


@app.command()
@about_environment
def pause(scope: ApiScope, queue: QueueArgument) -> None:
    """Pause a queue: no message is handed out until `resume`."""
    ask_api(scope, lambda api: api.post("queues", queue, "pause"))


@app.command()
@about_environment
def resume(scope: ApiScope, queue: QueueArgument) -> None:
    """Resume a queue: messages are handed out again."""
    ask_api(scope, lambda api: api.post("queues", queue, "resume"))


async def _find(api: ApiSession, queue: str) -> dict[str, Any] | None:
    try:
        return await api.get("queues", queue)
    except RefusedByApi as error:
        if error.problem.get("status") == 404:
            return None
        raise


def _check_json(data: bytes) -> None:
    try:
        json.loads(data)
    except ValueError as error:
        raise InvalidInput(f"the payload is not JSON ({error}); quote it, or send it with `--raw`") from None


def _text(message: dict[str, Any]) -> str:
    if "payload" in message:
        return json.dumps(message["payload"], ensure_ascii=False)
    return base64.b64decode(message["payload_base64"]).decode(errors="replace")
