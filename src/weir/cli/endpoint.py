"""`weir endpoint`: endpoints that answered 410 and get no more deliveries, and how to enable them again."""

from __future__ import annotations

from typing import Annotated

import typer

from weir.cli.api import ApiScope, about_environment, ask_api
from weir.cli.options import JsonOption
from weir.cli.output import Columns, print_items, shown_time
from weir.cli.tables import id_column, long_column

app = typer.Typer(no_args_is_help=True)


@app.command("list")
@about_environment
def list_disabled(scope: ApiScope, as_json: JsonOption = False) -> None:
    """List the endpoints that receive nothing now; their queues keep their messages."""
    found = ask_api(scope, lambda api: api.get("disabled-endpoints"))["items"]
    columns: Columns = {
        id_column("url"): "url",
        "since": lambda row: shown_time(row["disabled_at_ms"]),
        long_column("reason"): "reason",
    }
    print_items(found, columns, as_json=as_json)


@app.command()
@about_environment
def enable(
    scope: ApiScope,
    url: Annotated[str, typer.Argument(help="Address of the endpoint, as `weir endpoint list` shows it.")],
) -> None:
    """Let an endpoint receive again; workers notice within a second."""
    ask_api(scope, lambda api: api.post("disabled-endpoints", "enable", body={"url": url}))
    typer.echo(f"{url} receives again")
