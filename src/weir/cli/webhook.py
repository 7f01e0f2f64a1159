"""`weir webhook`: where webhooks are received, and which of their secrets are missing."""

from __future__ import annotations

from typing import Any

import typer

from weir.cli.api import ApiScope, about_environment, ask_api
from weir.cli.options import JsonOption
from weir.cli.output import Columns, print_items
from weir.cli.tables import id_column

app = typer.Typer(no_args_is_help=True)


@app.callback()
def webhook() -> None:
    """Makes this a noun: an app with one command would be that command."""


@app.command("list")
@about_environment
def list_webhooks(scope: ApiScope, as_json: JsonOption = False) -> None:
    """List the webhooks of an environment, and their secrets that `weir secret set` has not stored."""
    found = ask_api(scope, lambda api: api.get("webhooks"))["items"]
    columns: Columns = {
        "name": "name",
        id_column("path"): "path",
        "queue": "queue",
        "signed by": lambda row: row["scheme"] or "nobody",
        "state": _state,
    }
    print_items(found, columns, as_json=as_json)


def _state(row: dict[str, Any]) -> str:
    if row["missing_secrets"]:
        verb = "accepts" if row["accepts"] else "refuses everything"
        return f"{verb}; missing: {', '.join(row['missing_secrets'])}"
    return "accepts"
