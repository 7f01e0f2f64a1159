"""`weir channel`: channels, their consumers, and the tokens that open them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, ApiSession, about_environment, ask_api
from weir.cli.options import JsonOption
from weir.cli.output import Columns, print_items
from weir.cli.tables import id_column
from weir.errors import InvalidInput
from weir.model.wording import amount

app = typer.Typer(no_args_is_help=True)

ChannelId = Annotated[str, typer.Argument(help="Id of the channel.")]
Name = Annotated[str | None, typer.Option(help="Name that people call the channel by; left out: its id.")]
Consumers = Annotated[
    list[str] | None,
    typer.Option(
        "--consumer", "-c", help="Consumer as ID=QUEUE; repeat it for several. All others are removed."
    ),
]


@app.command("list")
@about_environment
def list_channels(scope: ApiScope, as_json: JsonOption = False) -> None:
    """List the channels of an environment with their consumers."""
    found = ask_api(scope, lambda api: api.get("channels"))["items"]
    columns: Columns = {
        id_column("channel"): "id",
        "name": "name",
        id_column("consumer"): "consumer",
        "queue": "queue",
    }
    print_items(found if as_json else _row_per_consumer(found), columns, as_json=as_json)


@app.command()
@about_environment
def create(scope: ApiScope, channel_id: ChannelId, name: Name = None, consumer: Consumers = None) -> None:
    """Create a channel, or change its name and consumers."""
    consumers = [_consumer(text) for text in consumer or []]
    body = {"name": name or channel_id, "consumers": consumers}
    ask_api(scope, lambda api: api.put("channels", channel_id, body=body))
    typer.echo(f"{channel_id}: {amount(len(consumers), 'consumer')}", err=True)


app.command("change")(create)


@app.command()
@about_environment
def delete(scope: ApiScope, channel_id: ChannelId) -> None:
    """Delete a channel; its consumers' queues and dead letters stay."""
    ask_api(scope, lambda api: api.delete("channels", channel_id))


@app.command()
@about_environment
def token(
    scope: ApiScope,
    channel_id: ChannelId,
    consumer_id: Annotated[
        str | None, typer.Argument(help="Consumer that the token is for; left out: the channel.")
    ] = None,
) -> None:
    """Make a new token for a channel or a consumer, and show it once; the old one ends at once."""
    path = ("channels", channel_id, *(() if consumer_id is None else ("consumers", consumer_id)), "tokens")

    async def renew(api: ApiSession) -> Any:
        return (await api.post(*path))["token"]

    typer.echo(ask_api(scope, renew))


def _row_per_consumer(channels: list[dict[str, Any]]) -> list[dict[str, str]]:
    """One row per consumer; a channel without consumers has one row, too."""
    none = {"id": "", "queue": ""}
    return [
        {"id": channel["id"], "name": channel["name"], "consumer": one["id"], "queue": one["queue"]}
        for channel in channels
        for one in channel["consumers"] or [none]
    ]


def _consumer(text: str) -> dict[str, str]:
    """A consumer from `ID=QUEUE`; the last `=` counts, since ids and queues are free text."""
    consumer_id, equals, queue = text.rpartition("=")
    if not equals:
        raise InvalidInput(f"`{text}` is not a consumer; write ID=QUEUE")
    return {"id": consumer_id, "name": consumer_id, "queue": queue}
