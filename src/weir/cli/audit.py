"""`weir audit`: who changed what."""

from __future__ import annotations

import typer

from weir.cli.api import ApiScope, about_environment, ask_api
from weir.cli.options import JsonOption, LongLimitOption
from weir.cli.output import Columns, print_items, scope_text, shown_time
from weir.cli.tables import id_column, long_column

app = typer.Typer(no_args_is_help=True)


@app.callback()
def audit() -> None:
    """Makes this a noun: an app with one command would be that command."""


@app.command("list")
@about_environment
def list_changes(
    scope: ApiScope,
    limit: LongLimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """List the requested changes, newest first; `-o`, `-p` and `-e` select those of a tenant."""
    names = {
        "organization": scope.organization,
        "project": scope.project,
        "environment": scope.environment,
    }
    found = ask_api(scope, lambda api: api.get("audit-log", limit=limit, **names))["items"]
    columns: Columns = {
        "time": lambda row: shown_time(row["at_ms"]),
        "action": "action",
        id_column("target"): "target",
        long_column("scope"): scope_text,
        long_column("by"): "actor",
        long_column("details"): lambda row: row["details"] or None,
    }
    print_items(found, columns, as_json=as_json)
