"""`weir config`: every setting with its value, and where the value comes from."""

from __future__ import annotations

import json

import typer

from weir.cli.options import JsonOption
from weir.settings import describe, load_settings

app = typer.Typer(no_args_is_help=True)


@app.callback()
def config() -> None:
    """Makes this a noun: an app with one command would be that command."""


@app.command()
def show(as_json: JsonOption = False) -> None:
    """Print every setting with its value and origin; passwords are masked."""
    rows = list(describe(load_settings()))
    if as_json:
        typer.echo(json.dumps({name: {"value": value, "origin": origin} for name, value, origin in rows}))
        return
    width = max(len(name) for name, _, _ in rows)
    for name, value, origin in rows:
        typer.echo(f"{name:<{width}}  {value or '(unset)'}  [{origin}]")
