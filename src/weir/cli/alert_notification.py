"""`weir alert-notification`: what was sent through which alert channel."""

from __future__ import annotations

import typer

from weir.cli.api import ApiScope, about_environment, ask_api
from weir.cli.options import JsonOption, LongLimitOption
from weir.cli.output import Columns, print_items, shown_time
from weir.cli.tables import id_column, long_column, number_column

app = typer.Typer(no_args_is_help=True)


@app.callback()
def alert_notification() -> None:
    """Makes this a noun: an app with one command would be that command."""


@app.command("list")
@about_environment
def list_notifications(
    scope: ApiScope,
    limit: LongLimitOption = 20,
    as_json: JsonOption = False,
) -> None:
    """List the notifications of an environment, newest first."""
    found = ask_api(scope, lambda api: api.get("alert-notifications", limit=limit))["items"]
    columns: Columns = {
        "state": "state",
        "kind": "kind",
        "channel": "channel",
        "rule": "rule_name",
        number_column("alerts"): "alerts",
        number_column("attempts"): lambda row: len(row["deliveries"]),
        long_column("created"): lambda row: shown_time(row["created_at_ms"]),
        long_column("error"): "last_error",
        id_column(): "id",
    }
    print_items(found, columns, as_json=as_json)
