"""`weir process`: the running programs of Weir that served an environment."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, about_environment, ask_api
from weir.cli.options import JsonOption
from weir.cli.output import Columns, print_items
from weir.cli.tables import id_column, long_column, number_column

app = typer.Typer(no_args_is_help=True)


@app.callback()
def process() -> None:
    """Processes: the running programs of Weir that served an environment."""


@app.command("list")
@about_environment
def list_processes(
    scope: ApiScope,
    period: Annotated[str, typer.Option(help="How far back to look, such as `5m` or `2h`.")] = "5m",
    as_json: JsonOption = False,
) -> None:
    """List the processes that served an environment, and how they are; hosts are shown to admins."""
    found = ask_api(scope, lambda api: api.get("workers", period=period))["workers"]
    columns: Columns = {
        id_column(): "worker_id",
        "role": "role",
        "health": "health",
        number_column("pool"): "pool_size",
        "last seen": "last_seen",
        long_column("host"): _host,
    }
    print_items(found, columns, as_json=as_json)


def _host(row: dict[str, Any]) -> str:
    return "" if row["hostname"] is None else f"{row['hostname']}:{row['pid']}"
