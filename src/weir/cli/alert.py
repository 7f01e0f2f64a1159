"""`weir alert`: the alerts that rules raised, and whether the rules are evaluated at all."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from weir.cli.alert_words import ALERT_COLUMNS
from weir.cli.api import ApiScope, about_environment, ask_api
from weir.cli.options import JsonOption, LongLimitOption
from weir.cli.output import print_fields, print_items, print_json, print_result, shown_time

app = typer.Typer(no_args_is_help=True)

AlertId = Annotated[str, typer.Argument(help="Id of the alert, as `weir alert list` shows it.")]


@app.command("list")
@about_environment
def list_alerts(
    scope: ApiScope,
    firing: Annotated[bool, typer.Option("--firing", help="Show only alerts that are not resolved.")] = False,
    queue: Annotated[str | None, typer.Option(help="Show only alerts of this queue.")] = None,
    limit: LongLimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """List the alerts of an environment, newest first."""
    query = {"state": "firing" if firing else None, "queue": queue, "limit": limit}
    found = ask_api(scope, lambda api: api.get("alerts", **query))["items"]
    print_items(found, ALERT_COLUMNS, as_json=as_json)


@app.command()
@about_environment
def show(scope: ApiScope, alert_id: AlertId, as_json: JsonOption = False) -> None:
    """Show one alert with its evidence and everything that happened to it."""
    found = ask_api(scope, lambda api: api.get("alerts", alert_id))
    if as_json:
        print_json(found)
        return
    print_fields({**_without(found, "verdict", "evidence", "evidence_table", "timeline")}, as_json=False)
    for line in found["evidence"]:
        typer.echo(f"- {line}")
    for entry in found["timeline"]:
        typer.echo(f"{shown_time(entry['at_ms'])}  {entry['event']}")


@app.command()
@about_environment
def acknowledge(scope: ApiScope, alert_id: AlertId, as_json: JsonOption = False) -> None:
    """Record that somebody looks at an alert."""
    _change(scope, alert_id, "acknowledge", as_json=as_json)


@app.command()
@about_environment
def resolve(scope: ApiScope, alert_id: AlertId, as_json: JsonOption = False) -> None:
    """End an alert by hand; if its condition still holds, it fires again after the cooldown."""
    _change(scope, alert_id, "resolve", as_json=as_json)


@app.command()
@about_environment
def status(scope: ApiScope, as_json: JsonOption = False) -> None:
    """Show when the rules were last evaluated, how long that took, and by which process."""
    print_fields(ask_api(scope, lambda api: api.get("alert-evaluator")), as_json=as_json)


def _change(scope: ApiScope, alert_id: str, verb: str, *, as_json: bool) -> None:
    changed = ask_api(scope, lambda api: api.post("alerts", alert_id, verb))
    print_result(changed, as_json=as_json)


def _without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}
