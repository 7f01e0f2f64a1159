"""`weir channel`: channels, their consumers, and the tokens that they are opened with."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from weir.cli.options import JsonOption
from weir.cli.scope import ACTOR, Desk, Place, at_desk, scoped
from weir.errors import InvalidInput
from weir.spec.ir import ChannelSpec, ConsumerSpec

app = typer.Typer(no_args_is_help=True, help="Channels: one message to many consumers, each with a queue.")

ChannelId = Annotated[str, typer.Argument(help="The id of the channel.")]


@app.command("list")
@scoped
def list_channels(
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """Every channel with its consumers."""

    async def work(desk: Desk) -> list[ChannelSpec]:
        return await desk.room.channels.of(desk.environment)

    found = at_desk(place, work)
    rows = [
        {"channel": channel.id, "name": channel.name, "consumer": one.id, "queue": one.queue}
        for channel in found
        for one in channel.consumers or (ConsumerSpec(id="", name="", queue=""),)
    ]
    if as_json:
        typer.echo(json.dumps(rows))
        return
    table = Table("channel", "name", "consumer", "queue")
    for row in rows:
        table.add_row(*row.values())
    Console().print(table)


@app.command()
@scoped
def put(
    place: Place,
    channel_id: ChannelId,
    name: Annotated[str | None, typer.Option(help="What people call it; else its id.")] = None,
    consumer: Annotated[
        list[str] | None,
        typer.Option("--consumer", "-c", help="ID=QUEUE, once for each; those left out are removed."),
    ] = None,
) -> None:
    """Create a channel, or change its name and consumers."""
    channel = ChannelSpec(
        id=channel_id, name=name or channel_id, consumers=tuple(_consumer(text) for text in consumer or [])
    )

    async def work(desk: Desk) -> None:
        await desk.room.channels.put(desk.environment, channel, by=ACTOR)

    at_desk(place, work)
    typer.echo(f"{channel.id}: {len(channel.consumers)} consumers", err=True)


@app.command()
@scoped
def remove(
    place: Place,
    channel_id: ChannelId,
) -> None:
    """Remove a channel; its consumers' queues and dead letters stay."""

    async def work(desk: Desk) -> None:
        await desk.room.channels.remove(desk.environment, channel_id, by=ACTOR)

    at_desk(place, work)


@app.command()
@scoped
def token(
    place: Place,
    channel_id: ChannelId,
    consumer_id: Annotated[str | None, typer.Argument(help="For this consumer, else the channel.")] = None,
) -> None:
    """A fresh token for a channel or a consumer, shown this once; the old one ends at once."""

    async def work(desk: Desk) -> str:
        channels = desk.room.channels
        if consumer_id is None:
            return await channels.new_channel_token(desk.environment, channel_id, by=ACTOR)
        return await channels.new_consumer_token(desk.environment, channel_id, consumer_id, by=ACTOR)

    typer.echo(at_desk(place, work))


def _consumer(text: str) -> ConsumerSpec:
    """A consumer from `ID=QUEUE`; the last `=` counts, since ids and queues are free text."""
    consumer_id, equals, queue = text.rpartition("=")
    if not equals:
        raise InvalidInput(f"`{text}` is not a consumer; write ID=QUEUE")
    return ConsumerSpec(id=consumer_id, name=consumer_id, queue=queue)
