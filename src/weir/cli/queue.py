"""`weir queue`: look at queues and move messages by hand, straight through the broker."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer
from rich.console import Console
from rich.table import Table

from weir.broker.broker import Broker
from weir.broker.redis import RedisBroker
from weir.broker.runner import Connection
from weir.cli.options import DataDirOption, JsonOption, settings_with
from weir.cli.running import run_until_done
from weir.cli.scope import EnvironmentOption, OrganizationOption, ProjectOption
from weir.embedded.urls import resolve_urls
from weir.errors import InvalidInput, LeaseLost, QueueFull
from weir.model.ids import MessageId
from weir.model.message import Delivery, Enqueue, Failure, LeaseRef, NewMessage, QueueState, Settlement
from weir.model.names import EnvironmentRef
from weir.spec.ir import DeliveryPolicy, Ordering, QueueSpec, Retention

app = typer.Typer(no_args_is_help=True, help="Queues: look at them, move messages by hand.")

Result = TypeVar("Result")
QueueArgument = Annotated[str, typer.Argument(help="Name of the queue.")]
MessageArgument = Annotated[str, typer.Argument(help="Id of the message, as `pop` printed it.")]
TokenArgument = Annotated[str, typer.Argument(help="Token of the lease, as `pop` printed it.")]
_FULL = (Enqueue.FULL, Enqueue.GATED)


def _with_broker(
    data_dir: Path | None,
    scope: tuple[str, str, str],
    work: Callable[[Broker, EnvironmentRef], Awaitable[Result]],
) -> Result:
    settings = settings_with(data_dir)
    organization, project, environment = scope
    ref = EnvironmentRef(organization=organization, project=project, environment=environment)

    async def run() -> Result:
        url = settings.redis_url or resolve_urls(settings).redis
        broker = RedisBroker(Connection(url=str(url)), shards=settings.shards)
        try:
            return await work(broker, ref)
        finally:
            await broker.aclose()

    return cast(Result, run_until_done(run()))


@app.command("list")
def list_queues(
    organization: OrganizationOption = "default",
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Every queue of an environment, right now."""
    states = _with_broker(
        data_dir, (organization, project, environment), lambda broker, scope: broker.states(scope)
    )
    if as_json:
        typer.echo(json.dumps([_plain(state) for state in states]))
        return
    table = Table("queue", "waiting", "delayed", "running", "limit", "oldest", "paused")
    for state in states:
        table.add_row(
            state.queue.queue,
            f"{state.depth:,}",
            f"{state.delayed:,}",
            f"{state.running:,}",
            "" if state.limit is None else f"{state.limit:,}",
            f"{state.oldest_age_ms / 1_000:,.1f} s",
            "paused" if state.paused else "",
        )
    Console().print(table)


def _plain(state: QueueState) -> dict[str, Any]:
    return {**asdict(state), "queue": state.queue.queue, "odometers": dict(state.odometers)}


@app.command()
def show(
    queue: QueueArgument,
    organization: OrganizationOption = "default",
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """One queue: its gauges and its lifetime totals."""
    state = _with_broker(
        data_dir, (organization, project, environment), lambda broker, scope: broker.state(scope.queue(queue))
    )
    if as_json:
        typer.echo(json.dumps(_plain(state)))
        return
    plain = _plain(state)
    totals = plain.pop("odometers")
    table = Table("what", "now")
    for name, value in {**plain, **{f"{name} in all": total for name, total in totals.items()}}.items():
        table.add_row(name.replace("_", " "), str(value))
    Console().print(table)


@app.command()
def define(
    queue: QueueArgument,
    organization: OrganizationOption = "default",
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    ordering: Annotated[Ordering, typer.Option(help="How messages are ordered.")] = Ordering.UNORDERED,
    concurrency: Annotated[int | None, typer.Option(help="Leases at once.")] = None,
    max_depth: Annotated[int | None, typer.Option(help="Refuse messages beyond this.")] = None,
    max_attempts: Annotated[int, typer.Option(help="Attempts before a message dies.")] = 5,
    lease_ms: Annotated[int, typer.Option(help="How long a lease lasts.")] = 30_000,
    data_dir: DataDirOption = None,
) -> None:
    """Create a queue or change its promises for a try-out; lasting ones belong in a spec."""
    spec = QueueSpec(
        name=queue,
        ordering=ordering,
        concurrency=concurrency,
        retention=Retention(max_depth=max_depth),
        delivery=DeliveryPolicy(max_attempts=max_attempts, lease_ms=lease_ms),
    )
    _with_broker(
        data_dir,
        (organization, project, environment),
        lambda broker, scope: broker.define(scope.queue(queue), spec),
    )


@app.command()
def push(
    queue: QueueArgument,
    payload: Annotated[str, typer.Argument(help="The payload; `-` reads standard input.")],
    organization: OrganizationOption = "default",
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    key: Annotated[str | None, typer.Option(help="Ordering key.")] = None,
    priority: Annotated[
        int | None, typer.Option(help="0 to 9; 9 is served first. The queue's own unless given.")
    ] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="Taken once a day.")] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put one message in."""
    data = sys.stdin.buffer.read() if payload == "-" else payload.encode()
    message = NewMessage(payload=data, key=key, priority=priority, idempotency_key=idempotency_key)
    (answer,) = _with_broker(
        data_dir,
        (organization, project, environment),
        lambda broker, scope: broker.enqueue(scope.queue(queue), [message]),
    )
    if answer.outcome in _FULL:
        raise QueueFull(f"the queue `{queue}` did not take it: {answer.outcome}; try again later")
    if answer.outcome is Enqueue.KEY_REUSED:
        raise InvalidInput(
            f"the idempotency key `{idempotency_key}` came with another payload; use a new one"
        )
    typer.echo(json.dumps(asdict(answer)) if as_json else f"{answer.message_id} {answer.outcome}")


@app.command()
def pop(
    queue: QueueArgument,
    organization: OrganizationOption = "default",
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    limit: Annotated[int, typer.Option(help="How many at most.")] = 1,
    lease_ms: Annotated[int | None, typer.Option(help="How long the lease lasts.")] = None,
    wait_ms: Annotated[int, typer.Option(help="Wait that long for the first one.")] = 0,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take messages under leases; `ack` or `nack` them with the token printed here."""
    got = _with_broker(
        data_dir,
        (organization, project, environment),
        lambda broker, scope: broker.dequeue(
            scope.queue(queue), consumer="cli", limit=limit, lease_ms=lease_ms, wait_ms=wait_ms
        ),
    )
    if as_json:
        typer.echo(json.dumps([_plain_delivery(one) for one in got]))
        return
    for one in got:
        text = one.payload.decode(errors="replace")
        typer.echo(f"{one.message_id} {one.lease.token} attempt {one.attempt}: {text}")


def _plain_delivery(one: Delivery) -> dict[str, Any]:
    return {
        "message_id": one.message_id,
        "token": one.lease.token,
        **_plain_payload(one.payload),
        "headers": dict(one.headers),
        "key": one.key,
        "priority": one.priority,
        "attempt": one.attempt,
        "wait_ms": one.wait_ms,
        "lease_until_ms": one.lease_until_ms,
        "last_error": one.last_error,
    }


def _plain_payload(data: bytes) -> dict[str, str]:
    """A payload as JSON can hold it, exactly."""
    try:
        return {"payload": data.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(data).decode()}


@app.command()
def ack(
    queue: QueueArgument,
    message_id: MessageArgument,
    token: TokenArgument,
    organization: OrganizationOption = "default",
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    data_dir: DataDirOption = None,
) -> None:
    """Done: remove the message for good."""
    _settle(
        data_dir,
        (organization, project, environment),
        (queue, message_id, token),
        lambda broker, lease: broker.ack([lease]),
    )


@app.command()
def nack(
    queue: QueueArgument,
    message_id: MessageArgument,
    token: TokenArgument,
    organization: OrganizationOption = "default",
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    error: Annotated[str, typer.Option(help="Why it failed.")] = "",
    data_dir: DataDirOption = None,
) -> None:
    """Failed: wait for the next attempt, or die after the last one."""
    _settle(
        data_dir,
        (organization, project, environment),
        (queue, message_id, token),
        lambda broker, lease: broker.nack([Failure(lease=lease, error=error)]),
    )


_Settle = Callable[[Broker, LeaseRef], Awaitable[list[Settlement]]]


def _settle(
    data_dir: Path | None, scope: tuple[str, str, str], named: tuple[str, str, str], step: _Settle
) -> None:
    queue, message_id, token = named

    async def work(broker: Broker, environment: EnvironmentRef) -> Settlement:
        lease = LeaseRef(queue=environment.queue(queue), message_id=MessageId(message_id), token=token)
        return (await step(broker, lease))[0]

    answer = _with_broker(data_dir, scope, work)
    if answer is Settlement.LAPSED:
        raise LeaseLost("the lease lapsed, was settled before or belongs to someone else; pop again")
    typer.echo(str(answer))


@app.command()
def pause(
    queue: QueueArgument,
    organization: OrganizationOption = "default",
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    data_dir: DataDirOption = None,
) -> None:
    """Hand out nothing more until `resume`."""
    _with_broker(
        data_dir, (organization, project, environment), lambda broker, scope: broker.pause(scope.queue(queue))
    )


@app.command()
def resume(
    queue: QueueArgument,
    organization: OrganizationOption = "default",
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    data_dir: DataDirOption = None,
) -> None:
    """Hand out again."""
    _with_broker(
        data_dir,
        (organization, project, environment),
        lambda broker, scope: broker.resume(scope.queue(queue)),
    )


@app.command()
def forget(
    queue: QueueArgument,
    organization: OrganizationOption = "default",
    project: ProjectOption = "default",
    environment: EnvironmentOption = "default",
    data_dir: DataDirOption = None,
) -> None:
    """Remove an empty queue."""
    _with_broker(
        data_dir,
        (organization, project, environment),
        lambda broker, scope: broker.forget(scope.queue(queue)),
    )
