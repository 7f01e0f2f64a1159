"""`weir openapi`: prints the description of the HTTP API; docs/reference holds a copy."""

from __future__ import annotations

import json

import typer

from weir.api.app import describe

app = typer.Typer()


@app.command()
def openapi() -> None:
    """Print the OpenAPI 3.1 document."""
    typer.echo(json.dumps(describe(), indent=1, ensure_ascii=False))
