"""`weir up`: the embedded servers, until Ctrl-C."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from weir.cli.options import DataDirOption, JsonOption, settings_with
from weir.cli.running import run_until_done
from weir.embedded.open import stack_from
from weir.settings import Settings

app = typer.Typer()


@app.command()
def up(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Start Redis, PostgreSQL and ClickHouse as children of this process; Ctrl-C stops them."""
    run_until_done(_up(settings_with(data_dir), as_json=as_json))


async def _up(settings: Settings, *, as_json: bool) -> None:
    async with stack_from(settings, report=lambda line: typer.echo(f"weir: {line}", err=True)) as stack:
        urls = asdict(stack.urls)
        if as_json:
            typer.echo(json.dumps({"data_dir": str(stack.data_dir.path), **urls}))
        else:
            typer.echo(f"up in {stack.data_dir.path}; other commands find it there. Ctrl-C stops it.")
            for name, url in urls.items():
                typer.echo(f"export WEIR_{name.upper()}_URL='{url}'")
        await stack.failed()
