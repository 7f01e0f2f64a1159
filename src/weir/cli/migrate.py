"""`weir migrate`: bring PostgreSQL and ClickHouse up to date."""

from __future__ import annotations

import json

import typer

from weir.cli.options import DataDirOption, JsonOption, settings_with
from weir.cli.running import import_from_here, run_until_done, say
from weir.stores.migrations import RegisteredMetrics, migrate_stores
from weir.stores.urls import resolve_urls

app = typer.Typer()


@app.command()
def migrate(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Apply the migrations that are missing; safe to run twice and by two processes at once."""
    settings = settings_with(data_dir)
    import_from_here()
    metrics, urls = RegisteredMetrics.of(settings), resolve_urls(settings)
    applied = run_until_done(migrate_stores(urls, metrics=metrics, say=say), doing="migrating") or {}
    if as_json:
        typer.echo(json.dumps(applied))
        return
    for store, names in applied.items():
        typer.echo(f"{store}: {', '.join(names) or 'up to date'}")
