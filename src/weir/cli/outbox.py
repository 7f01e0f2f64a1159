"""`weir outbox`: the outbox in a database of the user's own, and the relay that moves messages out of it."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from weir.cli.api import ApiScope, about_environment, api_session
from weir.cli.options import JsonOption, LongLimitOption
from weir.cli.output import Columns, print_fields, print_items, print_result, shown_time
from weir.cli.running import run_until_done
from weir.cli.tables import id_column, long_column
from weir.client.core import AsyncWeir
from weir.client.options import ClientOptions
from weir.errors import InvalidInput
from weir.model.wording import amount
from weir.outbox.figures import list_failed, outbox_figures, retry_failed, show_message
from weir.outbox.migration import migrate as migrate_outbox
from weir.outbox.relaying import relay as relay_outbox

app = typer.Typer(no_args_is_help=True)

DatabaseOption = Annotated[
    str, typer.Option("--database", help="URL of the PostgreSQL database with the outbox.")
]
MessageIdArgument = Annotated[str, typer.Argument(help="Id of the message in the outbox.")]
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


@app.command("list")
def list_set_aside(
    database: DatabaseOption, limit: LongLimitOption = 100, as_json: JsonOption = False
) -> None:
    """List the messages that were set aside because they can never be pushed, each with the reason."""
    columns: Columns = {
        "queue": "queue",
        "key": "key",
        long_column("set aside"): lambda row: shown_time(row["failed_at_ms"]),
        long_column("problem"): "problem",
        id_column(): "id",
    }
    print_items(run_until_done(list_failed(database, limit=limit)) or [], columns, as_json=as_json)


@app.command()
def show(message_id: MessageIdArgument, database: DatabaseOption, as_json: JsonOption = False) -> None:
    """Show a message that is still in the outbox, with the beginning of its payload."""
    print_fields(run_until_done(show_message(database, message_id)) or {}, as_json=as_json)


@app.command()
def retry(
    database: DatabaseOption,
    message_ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of messages that were set aside.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every message that was set aside.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Let the relay push messages again that were set aside."""
    if bool(message_ids) == everything:
        raise InvalidInput("give the ids of messages, or `--all`")
    count = run_until_done(retry_failed(database, None if everything else message_ids)) or 0
    print_result({"retried": count}, f"{amount(count, 'message')} will be pushed again", as_json=as_json)


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
