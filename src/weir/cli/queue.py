"""`weir queue`: look at queues, say what they promise, and move messages by hand, all through the API."""

from __future__ import annotations

import base64
import json
import sys
from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, ApiSession, RefusedByApi, about_environment, ask_api
from weir.cli.options import JsonOption
from weir.cli.tables import OutputTable, id_column, number_column
from weir.errors import InvalidInput
from weir.model.durations import duration_ms
from weir.spec.ir import Ordering

app = typer.Typer(no_args_is_help=True, help="Queues: look at them, change them, move messages by hand.")

QueueArgument = Annotated[str, typer.Argument(help="Name of the queue.")]
MessageArgument = Annotated[str, typer.Argument(help="Id of the message, as `pop` printed it.")]
LeaseArgument = Annotated[str, typer.Argument(help="Token of the lease, as `pop` printed it.")]
OrderingOption = Annotated[Ordering | None, typer.Option(help="How messages are ordered.")]
ConcurrencyOption = Annotated[int | None, typer.Option(help="Messages that may be leased at once.")]
DepthOption = Annotated[int | None, typer.Option(help="Messages that may wait; more are refused.")]
AttemptsOption = Annotated[int | None, typer.Option(help="Attempts before a message dies.")]
LeaseOption = Annotated[str | None, typer.Option("--lease", help="How long a lease lasts, such as `30s`.")]
PriorityOption = Annotated[
    int | None, typer.Option(help="Priority of the messages, 0 to 9; 9 is served first.")
]


@app.command("list")
@about_environment
def list_queues(scope: ApiScope, as_json: JsonOption = False) -> None:
    """List the queues of an environment with their state right now."""
    queues = ask_api(scope, lambda api: api.get("queues"))["items"]
    if as_json:
        typer.echo(json.dumps(queues))
        return
    table = OutputTable(
        id_column("queue"),
        *(number_column(name) for name in ("waiting", "delayed", "running", "limit", "oldest")),
        "paused",
    )
    for one in queues:
        table.add_row(
            one["name"],
            f"{one['depth']:,}",
            f"{one['delayed']:,}",
            f"{one['running']:,}",
            "" if one["limit"] is None else f"{one['limit']:,}",
            f"{one['oldest_age_ms'] / 1_000:,.1f} s",
            "paused" if one["paused"] else "",
        )
    table.print()


@app.command()
@about_environment
def show(scope: ApiScope, queue: QueueArgument, as_json: JsonOption = False) -> None:
    """Show one queue: its gauges, its lifetime totals and what it promises."""
    found = ask_api(scope, lambda api: api.get("queues", queue))
    if as_json:
        typer.echo(json.dumps(found))
        return
    table = OutputTable("what", "value")
    for name, value in _flat({**found, "totals": {}, "definition": {}}):
        table.add_row(name, value)
    for name, value in _flat(found["totals"]):
        table.add_row(f"{name} in all", value)
    for name, value in _flat(found["definition"] or {}):
        table.add_row(f"promises {name}", value)
    table.print()


@app.command()
@about_environment
def create(
    scope: ApiScope,
    queue: QueueArgument,
    ordering: OrderingOption = None,
    concurrency: ConcurrencyOption = None,
    max_depth: DepthOption = None,
    max_attempts: AttemptsOption = None,
    lease: LeaseOption = None,
    priority: PriorityOption = None,
) -> None:
    """Create a queue for a try-out; lasting ones belong in a spec."""
    body = _promises({}, ordering, concurrency, max_depth, max_attempts, lease, priority)

    async def make(api: ApiSession) -> None:
        if await _find(api, queue) is not None:
            raise InvalidInput(f"the queue `{queue}` exists; change it with `weir queue change`")
        await api.put("queues", queue, body=body)

    ask_api(scope, make)


@app.command()
@about_environment
def change(
    scope: ApiScope,
    queue: QueueArgument,
    ordering: OrderingOption = None,
    concurrency: ConcurrencyOption = None,
    max_depth: DepthOption = None,
    max_attempts: AttemptsOption = None,
    lease: LeaseOption = None,
    priority: PriorityOption = None,
) -> None:
    """Change what a queue promises; options that are left out stay as they are."""

    async def alter(api: ApiSession) -> None:
        before = (await api.get("queues", queue))["definition"] or {}
        body = _promises(before, ordering, concurrency, max_depth, max_attempts, lease, priority)
        await api.put("queues", queue, body=body)

    ask_api(scope, alter)


@app.command()
@about_environment
def delete(scope: ApiScope, queue: QueueArgument) -> None:
    """Delete an empty queue."""
    ask_api(scope, lambda api: api.delete("queues", queue))


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
        int | None, typer.Option(help="Priority, 0 to 9; 9 is served first. Left out: that of the queue.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(help="Hand the message out only after that, such as `30s` or `2h`.")
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
        # Base64 keeps the bytes as they were typed, which JSON that is read and written again does not.
        "payload_base64": base64.b64encode(data).decode(),
        "headers": None if raw else {"content-type": "application/json"},
        "key": key,
        "priority": priority,
        "delay_ms": None if delay is None else duration_ms(delay),
        "idempotency_key": idempotency_key,
    }
    given = {name: value for name, value in item.items() if value is not None}
    answer = ask_api(scope, lambda api: api.post("push", body={"items": [given]}))["items"][0]
    typer.echo(json.dumps(answer) if as_json else f"{answer.get('id') or ''} {answer['status']}".strip())


@app.command()
@about_environment
def pop(
    scope: ApiScope,
    queue: QueueArgument,
    limit: Annotated[int, typer.Option(help="Take at most so many messages.")] = 1,
    lease: LeaseOption = None,
    wait: Annotated[str | None, typer.Option(help="Wait that long for the first one, such as `5s`.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Take messages under leases; `ack` or `nack` them with the token printed here."""
    body = {"queue": queue, "limit": limit, "wait_ms": 0 if wait is None else duration_ms(wait)}
    if lease is not None:
        body["lease_ms"] = duration_ms(lease)
    messages = ask_api(scope, lambda api: api.post("pop", body=body))["messages"]
    if as_json:
        typer.echo(json.dumps(messages))
        return
    for one in messages:
        typer.echo(f"{one['id']} {one['lease']} attempt {one['attempt']}: {_text(one)}")


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


def _promises(
    before: dict[str, Any],
    ordering: Ordering | None,
    concurrency: int | None,
    max_depth: int | None,
    max_attempts: int | None,
    lease: str | None,
    priority: int | None,
) -> dict[str, Any]:
    """What a queue promised, with what was given in place of it."""
    lease_ms = None if lease is None else duration_ms(lease)
    retention = {**before.get("retention", {}), **_given(max_depth=max_depth)}
    delivery = {**before.get("delivery", {}), **_given(max_attempts=max_attempts, lease_ms=lease_ms)}
    own = _given(
        ordering=None if ordering is None else ordering.value, concurrency=concurrency, priority=priority
    )
    return {**before, **own, "retention": retention, "delivery": delivery}


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _flat(document: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in document.items():
        words = f"{prefix}{name.replace('_', ' ')}"
        rows += _flat(value, f"{words} ") if isinstance(value, dict) else [(words, str(value))]
    return rows


def _check_json(data: bytes) -> None:
    try:
        json.loads(data)
    except ValueError as error:
        raise InvalidInput(f"the payload is not JSON ({error}); quote it, or send it with `--raw`") from None


def _text(message: dict[str, Any]) -> str:
    if "payload" in message:
        return json.dumps(message["payload"], ensure_ascii=False)
    return base64.b64decode(message["payload_base64"]).decode(errors="replace")
