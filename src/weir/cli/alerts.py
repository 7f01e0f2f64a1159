"""`weir alerts`: rules, what they raised, where it is told, and whether telling works."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from weir.alerts.channel import channel_of
from weir.alerts.lease import show_lease
from weir.alerts.records import State
from weir.alerts.rule import DEFAULT_COOLDOWN_MS, DEFAULT_WINDOW_MS, draft_of
from weir.api.alerting import alert_detail, alert_view, channel_view, rule_view, silence_view
from weir.cli.alert_desk import AlertDesk, at_alerts
from weir.cli.alert_words import alert_table, rule_table, silence_table
from weir.cli.options import DataDirOption, JsonOption
from weir.cli.scope import ACTOR, Place, scoped
from weir.cli.tables import OutputTable, long_column
from weir.errors import InvalidInput, NotFound, Unavailable
from weir.serve.bootstrap import DEFAULT
from weir.warehouse.reading.periods import parse_period

app = typer.Typer(no_args_is_help=True, help="When to speak: rules, alerts, channels, silences.")
_TEST_S = 30.0


@app.command("list")
@scoped
def list_alerts(
    place: Place,
    firing: Annotated[bool, typer.Option("--firing", help="Only those that are not resolved.")] = False,
    queue: Annotated[str | None, typer.Option(help="Only of this queue.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000)] = 50,
    as_json: JsonOption = False,
) -> None:
    """What was raised, newest first."""

    async def work(desk: AlertDesk) -> list[dict[str, Any]]:
        state = State.FIRING if firing else None
        found = await desk.room.records.of(desk.environment, state=state, queue=queue, limit=limit)
        return [alert_view(alert).model_dump() for alert in found]

    _show(at_alerts(place, work), alert_table, as_json=as_json)


@app.command()
@scoped
def show(
    place: Place,
    alert_id: str,
) -> None:
    """One alert with its evidence and timeline, as JSON."""

    async def work(desk: AlertDesk) -> dict[str, Any]:
        alert = await desk.room.records.find(desk.environment, alert_id)
        return alert_detail(alert, await desk.room.records.timeline(alert)).model_dump()

    typer.echo(json.dumps(at_alerts(place, work), indent=2))


@app.command()
@scoped
def ack(
    place: Place,
    alert_id: str,
) -> None:
    """Say that somebody looks at an alert."""
    at_alerts(place, lambda d: d.room.records.acknowledge(d.environment, alert_id, actor=ACTOR))


@app.command()
@scoped
def resolve(
    place: Place,
    alert_id: str,
) -> None:
    """End an alert by hand."""
    at_alerts(place, lambda d: d.room.records.resolve(d.environment, alert_id, actor=ACTOR))


@app.command()
@scoped
def rules(
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """The rules of the environment."""

    async def work(desk: AlertDesk) -> list[dict[str, Any]]:
        return [rule_view(rule).model_dump() for rule in await desk.room.rules.of(desk.environment)]

    _show(at_alerts(place, work), rule_table, as_json=as_json)


@app.command()
@scoped
def create(
    place: Place,
    name: str,
    metric: str,
    operator: Annotated[str, typer.Argument(help="One of > >= < <=, or gt, gte, lt, lte.")],
    threshold: float,
    queue: Annotated[str | None, typer.Option(help="Left out: every queue, each on its own.")] = None,
    window: Annotated[str, typer.Option(help="Such as 30s, 5m, 2h.")] = f"{DEFAULT_WINDOW_MS // 1000}s",
    cooldown: Annotated[str, typer.Option(help="At least so long between two alerts.")] = (
        f"{DEFAULT_COOLDOWN_MS // 1000}s"
    ),
    clear: Annotated[float | None, typer.Option(help="Hysteresis: how calm counts as clear.")] = None,
    channel: Annotated[list[str] | None, typer.Option(help="Whom to tell; may be repeated.")] = None,
) -> None:
    """Watch something: `weir alerts create deep backlog '>' 1000 --window 5m`."""
    draft = draft_of(
        name=name,
        metric=metric,
        operator=operator,
        threshold=threshold,
        queue=queue,
        clear_threshold=clear,
        window_ms=parse_period(window),
        cooldown_ms=0 if cooldown in ("0", "0s") else parse_period(cooldown),
        channels=tuple(channel or ()),
    )

    async def work(desk: AlertDesk) -> str:
        await desk.room.check_references(desk.environment, draft)
        return (await desk.room.rules.create(desk.environment, draft)).id

    typer.echo(at_alerts(place, work))


@app.command()
@scoped
def delete(
    place: Place,
    rule_id: str,
) -> None:
    """Stop watching; open alerts of the rule are resolved."""
    at_alerts(place, lambda desk: desk.room.rules.delete(desk.environment, rule_id))


@app.command()
@scoped
def channels(
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """Where alerts can be told."""

    async def work(desk: AlertDesk) -> list[dict[str, Any]]:
        return [channel_view(one).model_dump() for one in await desk.room.channels.of(desk.environment)]

    rows = at_alerts(place, work)
    _print(rows, ("name", "kind", "config", "disabled_reason"), as_json=as_json)


@app.command("set-channel")
@scoped
def set_channel(
    place: Place,
    name: str,
    kind: Annotated[str, typer.Argument(help="slack, email, webhook or apprise.")],
    config: Annotated[str, typer.Argument(help='JSON, such as {"url": "https://…"}; see the reference.')],
) -> None:
    """Create a channel or change it."""
    try:
        document = json.loads(config)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise InvalidInput(
            'the configuration is no JSON object; expected something like {"url": "https://…"}'
        )

    async def work(desk: AlertDesk) -> None:
        channel = channel_of(desk.environment, name=name, kind=kind, config=document, policy=desk.room.policy)
        await desk.room.channels.put(channel)

    at_alerts(place, work)


@app.command("test")
@scoped
def fire_test(
    place: Place,
    channel: str,
    as_json: JsonOption = False,
) -> None:
    """Send a test notification the whole way, and say what came of it."""

    async def work(desk: AlertDesk) -> dict[str, Any]:
        found = await desk.room.channels.find(desk.environment, channel)
        return await _tested(desk, await desk.room.test(found))

    entry = at_alerts(place, work)
    typer.echo(json.dumps(entry) if as_json else f"{entry['state']}: {entry['last_error'] or 'no error'}")
    if entry["state"] != "delivered":
        raise typer.Exit(1)


@app.command()
@scoped
def log(
    place: Place,
    limit: Annotated[int, typer.Option(min=1, max=1_000)] = 20,
    as_json: JsonOption = False,
) -> None:
    """What was said through which channel, and in how many attempts."""

    async def work(desk: AlertDesk) -> list[dict[str, Any]]:
        return await desk.room.deliveries.of(desk.environment, limit=limit)

    rows = at_alerts(place, work)
    shown = rows if as_json else [{**row, "attempts": len(row["deliveries"])} for row in rows]
    columns = ("state", "kind", "channel", "rule_name", "alerts", "attempts", "last_error")
    _print(shown, columns, as_json=as_json)


@app.command()
@scoped
def silence(
    place: Place,
    lasting: Annotated[str, typer.Argument(help="Such as 30m or 4h.")],
    rule: Annotated[str | None, typer.Option(help="Left out: every rule.")] = None,
    queue: Annotated[str | None, typer.Option(help="Left out: every queue.")] = None,
    comment: str = "",
) -> None:
    """Tell nobody for a while; alerts are recorded all the same."""

    async def work(desk: AlertDesk) -> str:
        made = await desk.room.silences.add(
            desk.environment,
            for_ms=parse_period(lasting),
            rule_name=rule,
            queue=queue,
            comment=comment,
            actor=ACTOR,
        )
        return made.id

    typer.echo(at_alerts(place, work))


@app.command()
@scoped
def silences(
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """The silences that are not over."""

    async def work(desk: AlertDesk) -> list[dict[str, Any]]:
        return [silence_view(one).model_dump() for one in await desk.room.silences.of(desk.environment)]

    _show(at_alerts(place, work), silence_table, as_json=as_json)


@app.command()
@scoped
def unsilence(
    place: Place,
    silence_id: str,
) -> None:
    """Speak again at once."""
    at_alerts(place, lambda desk: desk.room.silences.end(desk.environment, silence_id))


@app.command()
def status(data_dir: DataDirOption = None) -> None:
    """Which process evaluates, when it last did and how long that took, as JSON."""

    async def work(desk: AlertDesk) -> dict[str, Any] | None:
        return await show_lease(desk.room.database)

    lease = at_alerts(Place(environment=DEFAULT, data_dir=data_dir), work)
    if lease is None:
        raise NotFound("nothing was ever evaluated; `weir serve` runs the evaluator")
    age_ms = None if lease["evaluated_at_ms"] is None else int(time.time() * 1_000) - lease["evaluated_at_ms"]
    typer.echo(json.dumps({**lease, "age_ms": age_ms}))


async def _tested(desk: AlertDesk, notification_id: str) -> dict[str, Any]:
    """Carry the outbox until the notification is settled or an attempt failed."""
    deadline = time.monotonic() + _TEST_S
    while time.monotonic() < deadline:
        await desk.relay.relay()
        await desk.courier.carry(wait_ms=500)
        entries = await desk.room.deliveries.of(desk.environment, limit=100)
        entry = next(one for one in entries if one["id"] == notification_id)
        if entry["deliveries"] or entry["state"] in ("delivered", "failed"):
            return entry
        await asyncio.sleep(0.1)
    raise Unavailable("the test notification is still on its way; look at `weir alerts log`")


def _show(
    rows: list[dict[str, Any]], table: Callable[[list[dict[str, Any]]], OutputTable], *, as_json: bool
) -> None:
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        table(rows).print()


_KINDS = {name: long_column(name) for name in ("config", "last_error")}


def _print(rows: list[dict[str, Any]], columns: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows))
        return
    table = OutputTable(*(_KINDS.get(name, name) for name in columns))
    for row in rows:
        table.add_row(*("" if row.get(name) is None else str(row[name]) for name in columns))
    table.print()
