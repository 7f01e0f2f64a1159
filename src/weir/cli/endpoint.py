"""`weir endpoint`: receivers that asked for no more, and letting them receive again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from weir.cli.options import JsonOption
from weir.cli.scope import Desk, Place, at_desk, scoped
from weir.control.database import Row
from weir.errors import NotFound
from weir.outbound.log import PostgresDeliveryLog

app = typer.Typer(no_args_is_help=True, help="Endpoints of deliveries that answered 410: list, enable.")


@app.command("list")
@scoped
def list_disabled(
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """The endpoints that get nothing now; their queues keep their messages."""

    async def work(desk: Desk) -> list[Row]:
        return await PostgresDeliveryLog(desk.database).disabled(desk.environment)

    found = at_desk(place, work)
    if as_json:
        kept = ("url", "disabled_at_ms", "reason")
        typer.echo(json.dumps([{name: row[name] for name in kept} for row in found]))
        return
    table = Table("url", "since", "reason")
    for row in found:
        since = datetime.fromtimestamp(row["disabled_at_ms"] / 1000, UTC).isoformat(timespec="seconds")
        table.add_row(row["url"], since, row["reason"])
    Console().print(table)


@app.command()
@scoped
def enable(
    place: Place,
    url: Annotated[str, typer.Argument(help="As `weir endpoint list` shows it.")],
) -> None:
    """Let an endpoint receive again; workers notice within a second."""

    async def work(desk: Desk) -> bool:
        return await PostgresDeliveryLog(desk.database).enable(desk.environment, url)

    if not at_desk(place, work):
        raise NotFound(f"the endpoint `{url:.200}` is not disabled here; see `weir endpoint list`")
    typer.echo(f"{url} receives again")
