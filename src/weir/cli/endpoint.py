"""`weir endpoint`: receivers that asked for no more, and letting them receive again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated

import typer

from weir.cli.api import ApiScope, about_environment, ask_api
from weir.cli.options import JsonOption
from weir.cli.tables import OutputTable, id_column, long_column

app = typer.Typer(no_args_is_help=True, help="Endpoints of deliveries that answered 410: list, enable.")


@app.command("list")
@about_environment
def list_disabled(scope: ApiScope, as_json: JsonOption = False) -> None:
    """List the endpoints that receive nothing now; their queues keep their messages."""
    found = ask_api(scope, lambda api: api.get("disabled-endpoints"))["items"]
    if as_json:
        typer.echo(json.dumps(found))
        return
    table = OutputTable(id_column("url"), "since", long_column("reason"))
    for row in found:
        since = datetime.fromtimestamp(row["disabled_at_ms"] / 1000, UTC).isoformat(timespec="seconds")
        table.add_row(row["url"], since, row["reason"])
    table.print()


@app.command()
@about_environment
def enable(
    scope: ApiScope,
    url: Annotated[str, typer.Argument(help="Address of the endpoint, as `weir endpoint list` shows it.")],
) -> None:
    """Let an endpoint receive again; workers notice within a second."""
    ask_api(scope, lambda api: api.post("disabled-endpoints", "enable", body={"url": url}))
    typer.echo(f"{url} receives again")
