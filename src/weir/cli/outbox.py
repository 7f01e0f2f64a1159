"""`weir outbox`: the outbox in a database of the user's own, and the relay that moves messages out of it."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from weir.cli.api import ApiScope, about_environment, api_session
from weir.cli.options import JsonOption
from weir.cli.output import print_fields
from weir.cli.running import run_until_done
from weir.client.core import AsyncWeir
from weir.client.options import ClientOptions
from weir.outbox.figures import outbox_figures
from weir.outbox.migration import migrate as migrate_outbox
from weir.outbox.relaying import relay as relay_outbox

app = typer.Typer(no_args_is_help=True)

DatabaseOption = Annotated[
    str, typer.Option("--database", help="URL of the PostgreSQL database with the outbox.")
]
_RELAY_TRIES = 2
"""Tries of one request. After them the relay goes on with other queues, and tries this one again later."""


@app.command()
def migrate(database: DatabaseOption) -> None:
    """Create the table of the outbox, or bring it up to date."""
    run_until_done(migrate_outbox(database), doing="migrating")


@app.command()
@about_environment
def relay(scope: ApiScope, database: DatabaseOption) -> None:
    """Move messages from the outbox into their queues until Ctrl-C."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)

    async def run() -> None:
        async with api_session(scope) as session, _client(session.options) as weir:
            await relay_outbox(database, weir)

    run_until_done(run())


@app.command()
def status(database: DatabaseOption, as_json: JsonOption = False) -> None:
    """Show how many messages wait in the outbox, since when, and how many can never be pushed."""
    print_fields(run_until_done(outbox_figures(database)) or {}, as_json=as_json)


def _client(options: ClientOptions) -> AsyncWeir:
    return AsyncWeir(
        options.base_urls,
        token=options.token,
        organization=options.organization,
        project=options.project,
        environment=options.environment,
        timeout=options.timeout_s,
        retry_attempts=_RELAY_TRIES,
    )
