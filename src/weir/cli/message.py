"""`weir message`: the story of one message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from weir.cli.api import ApiScope, about_environment, ask_api
from weir.cli.options import JsonOption
from weir.cli.output import print_json
from weir.cli.tables import OutputTable, long_column

app = typer.Typer(no_args_is_help=True, help="Messages: what happened to one.")


@app.callback()
def message() -> None:
    """Messages: what happened to one."""


@app.command()
@about_environment
def show(
    scope: ApiScope,
    message_id: Annotated[str, typer.Argument(help="Id of the message, as the answer to the push gave it.")],
    as_json: JsonOption = False,
) -> None:
    """Show what happened to a message: receipt, enqueue, attempts with errors, death and redrive."""
    found = ask_api(scope, lambda api: api.get("messages", message_id, "timeline"))
    if as_json:
        print_json(found)
        return
    table = OutputTable(
        "time",
        "what",
        long_column("details"),
        title=f"{found['message_id']} in {found['queue']}: {found['state']}",
    )
    for moment in found["items"]:
        at = datetime.fromtimestamp(moment["at_ms"] / 1000, UTC).isoformat(timespec="milliseconds")
        details = ", ".join(f"{name} {value}" for name, value in moment["details"].items())
        table.add_row(at, moment["what"], details)
    table.print()
