"""`weir alert-silence`: times in which no notifications are sent."""

from __future__ import annotations

from typing import Annotated

import typer

from weir.cli.alert_words import SILENCE_COLUMNS
from weir.cli.api import ApiScope, about_environment, ask_api
from weir.cli.options import JsonOption
from weir.cli.output import print_items, print_result
from weir.model.durations import duration_ms

app = typer.Typer(no_args_is_help=True)


@app.command("list")
@about_environment
def list_silences(scope: ApiScope, as_json: JsonOption = False) -> None:
    """List the silences that are not over."""
    found = ask_api(scope, lambda api: api.get("alert-silences"))["items"]
    print_items(found, SILENCE_COLUMNS, as_json=as_json)


@app.command()
@about_environment
def create(
    scope: ApiScope,
    lasting: Annotated[
        str, typer.Argument(metavar="DURATION", help="How long the silence lasts, such as `30m` or `4h`.")
    ],
    rule: Annotated[str | None, typer.Option(help="Name of the silenced rule; left out: every rule.")] = None,
    queue: Annotated[str | None, typer.Option(help="Silenced queue; left out: every queue.")] = None,
    comment: Annotated[str, typer.Option(help="Reason for the silence, which others see.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Send no notifications for a while; alerts that outlast it are sent at its end. Prints its id."""
    body = {"for_ms": duration_ms(lasting), "rule_name": rule, "queue": queue, "comment": comment}
    made = ask_api(scope, lambda api: api.post("alert-silences", body=body))
    print_result(made, made["id"], as_json=as_json)


@app.command()
@about_environment
def delete(
    scope: ApiScope,
    silence_id: Annotated[
        str, typer.Argument(help="Id of the silence, as `weir alert-silence list` shows it.")
    ],
) -> None:
    """End a silence at once."""
    ask_api(scope, lambda api: api.delete("alert-silences", silence_id))
