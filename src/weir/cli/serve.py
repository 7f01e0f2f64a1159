"""`weir serve`: the API and its loops, until Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer

from weir.api.logs import configure_logs
from weir.cli.options import DataDirOption, settings_with
from weir.cli.running import run_until_done
from weir.cli.service_manager import tell_ready
from weir.embedded.run_file import running_urls
from weir.serve.run import serve as serve_forever
from weir.serve.server import GRACE_S
from weir.stores.migrations import migrate_stores
from weir.stores.urls import resolve_urls

app = typer.Typer()


@app.command()
def serve(
    data_dir: DataDirOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 picks a free one.")] = None,
    new_epoch: Annotated[
        bool, typer.Option("--new-epoch", help="Start although Redis has lost its data, or is another Redis.")
    ] = False,
) -> None:
    """Serve HTTP over the stores in the settings, or over the stores that `weir up` runs."""
    settings = settings_with(data_dir)
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = settings.model_copy(update={"api": settings.api.model_copy(update=given)})
    configure_logs(level=settings.api.log_level)
    running, urls = running_urls(settings.embedded.data_dir), resolve_urls(settings)
    embedded = running is not None
    if running == urls:
        # Weir migrates the stores of its own data directory; for others an operator runs `weir migrate`.
        run_until_done(migrate_stores(urls), doing="migrating")
    run_until_done(
        serve_forever(
            settings,
            urls,
            accept_loss=new_epoch,
            token_dir=settings.embedded.data_dir if embedded else None,
            ready=_say_ready,
        ),
        fast=True,
        drain_s=GRACE_S,
    )


def _say_ready(url: str) -> None:
    typer.echo(f"serving {url}; Ctrl-C stops it")
    tell_ready()
