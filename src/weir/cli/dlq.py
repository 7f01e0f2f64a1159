"""`weir dlq`: dead letters, their groups and counts; redrives and purges are in `dlq_bulk_actions`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, ApiSession, about_environment, about_token, ask_api
from weir.cli.dlq_bulk_actions import purge, redrive, task_app
from weir.cli.options import DataDirOption, JsonOption, LimitOption, settings_with
from weir.cli.output import Columns, print_fields, print_items, print_json, shown_time
from weir.cli.running import telling
from weir.cli.tables import id_column, long_column, number_column
from weir.errors import InvalidInput, WeirError
from weir.model.wording import amount

app = typer.Typer(no_args_is_help=True)
app.command()(redrive)
app.command()(purge)
app.add_typer(task_app, name="task")
group_app = typer.Typer(no_args_is_help=True)
app.add_typer(group_app, name="group")

QueueArgument = Annotated[str, typer.Argument(help="Name of the queue in which the message died.")]
DeadLetterId = Annotated[str, typer.Argument(help="Id of the dead letter, as `weir dlq list` shows it.")]
Row = dict[str, Any]


@app.command()
@about_environment
def status(scope: ApiScope, as_json: JsonOption = False) -> None:
    """Count the dead letters of an environment by consumer; the counts are exact."""
    found = ask_api(scope, lambda api: api.get("dlq", "consumers"))["items"]
    columns: Columns = {
        "channel": "channel_name",
        "consumer": "consumer_name",
        "queue": "queue",
        number_column("dead"): "dead_count",
    }
    print_items(found, columns, as_json=as_json)


@app.command("list")
@about_environment
def list_dead_letters(
    scope: ApiScope,
    queue: QueueArgument,
    fingerprint: Annotated[str | None, typer.Option(help="Show only dead letters of this group.")] = None,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """List the dead letters of a queue, the last enqueued first."""
    query = {"queue": queue, "fingerprint": fingerprint}
    found = ask_api(scope, lambda api: _pages(api, query, limit=limit))
    columns: Columns = {
        id_column(): "id",
        "died": lambda row: shown_time(row["died_at_ms"]),
        "attempts": lambda row: f"{row['attempts']} of {row['max_attempts']}",
        "reason": "reason",
        id_column("group"): "fingerprint",
        long_column("error"): lambda row: row["error"][:80],
    }
    print_items(found, columns, as_json=as_json)


async def _pages(api: ApiSession, query: dict[str, Any], *, limit: int) -> list[Row]:
    """Read pages until there are enough dead letters. A page of large ones ends early."""
    found: list[Row] = []
    before: str | None = None
    while True:
        page = await api.get("dlq", "letters", **query, before=before, limit=limit - len(found))
        found += page["items"]
        before = page["next_before"]
        if before is None or len(found) >= limit:
            return found


@app.command()
@about_environment
def show(scope: ApiScope, queue: QueueArgument, letter_id: DeadLetterId, as_json: JsonOption = False) -> None:
    """Show one dead letter with its payload, and whether it was redriven."""
    found = ask_api(scope, lambda api: api.get("dlq", "letters", letter_id, queue=queue))
    print_fields(found, as_json=as_json)


@group_app.callback()
def group() -> None:
    """Groups of dead letters whose errors look alike."""


@group_app.command("list")
@about_environment
def list_groups(
    scope: ApiScope,
    queue: Annotated[str | None, typer.Option(help="Show only groups of this queue.")] = None,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """List groups of errors that look alike, the largest first."""
    found = ask_api(scope, lambda api: api.get("dlq", "groups", queue=queue, limit=limit))["items"]
    columns: Columns = {
        id_column("group"): "fingerprint",
        number_column("dead"): "dead_count",
        number_column("per hour"): lambda row: f"{row['rate_per_h']:g}",
        "since": lambda row: shown_time(row["first_seen_ms"]),
        "last": lambda row: shown_time(row["last_seen_ms"]),
        "queues": lambda row: row["queues"][:5],
        long_column("error"): "template",
    }
    print_items(found, columns, as_json=as_json)


@app.command()
@about_environment
def delete(
    scope: ApiScope,
    queue: QueueArgument,
    letter_id: DeadLetterId,
    force: Annotated[bool, typer.Option("--force", help="Delete it although it has attempts left.")] = False,
) -> None:
    """Delete one dead letter."""
    query = {"queue": queue, "force": "true" if force else None}
    ask_api(scope, lambda api: api.delete("dlq", "letters", letter_id, **query))
    typer.echo(f"deleted {letter_id}", err=True)


@app.command()
@about_environment
def check(
    scope: ApiScope,
    warn: Annotated[int, typer.Option(min=0, help="More dead letters than this are a warning.")],
    crit: Annotated[int, typer.Option(min=0, help="More dead letters than this are critical.")],
    queue: Annotated[str | None, typer.Option(help="Check only this queue; left out: every queue.")] = None,
) -> None:
    """A Nagios check: exit status 0 (OK), 1 (WARNING), 2 (CRITICAL) or 3 (UNKNOWN), and performance data."""
    try:
        if crit < warn:
            raise InvalidInput(f"--crit is {crit} and below --warn, which is {warn}; swap them")
        rows = ask_api(scope, lambda api: api.get("dlq", "consumers"))["items"]
    except WeirError as error:
        typer.echo(f"DLQ UNKNOWN - {error}")
        raise typer.Exit(3) from None
    code, line = verdict([row for row in rows if queue in (None, row["queue"])], warn=warn, crit=crit)
    typer.echo(line)
    raise typer.Exit(code)


@app.command()
@about_token
def audit(scope: ApiScope, as_json: JsonOption = False) -> None:
    """Recount every consumer's dead letters, repair wrong counts, print the drift; exit status 1 if any."""
    found = ask_api(scope, lambda api: api.post("dlq", "audit"))
    if as_json:
        print_json(found)
    else:
        typer.echo(
            f"{found['letters']:,} dead letters of {found['consumers']} consumers, drift {found['drift']}"
        )
    raise typer.Exit(1 if found["drift"] else 0)


@app.command()
def analyse(
    partitions: Annotated[
        int, typer.Option(min=1, max=10_000, help="Parts of the table that are read side by side.")
    ] = 8,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Print at most this many groups.")] = 20,
    output: Annotated[
        Path | None, typer.Option(help="Folder to which all groups are written as Parquet.")
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark master, such as `spark://host:7077`.")] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Group all dead letters again in Spark and show the trends, for tables too large for one query."""
    # Imported here, because it loads Spark, which the other commands do not need.
    from weir.serve.deadletters import analyse_dead_letters

    with telling("grouping dead letters in Spark"):
        found = analyse_dead_letters(
            settings_with(data_dir), partitions=partitions, limit=limit, output=output, master=master
        )
    if as_json:
        print_json(found)
        return
    columns: Columns = {
        id_column("group"): "fingerprint",
        number_column("dead"): "dead",
        number_column("queues"): "queues",
        number_column("tenants"): "tenants",
        number_column("busiest hour"): "busiest_hour",
        number_column("trend"): lambda group: f"{group['trend']:+.0%}",
        long_column("error"): lambda group: group["template"][:80],
    }
    print_items(found["groups"], columns, as_json=False)
    typer.echo(f"{amount(found['letters'], 'dead letter')} in {amount(found['kinds'], 'group')}", err=True)


def verdict(rows: list[Row], *, warn: int, crit: int) -> tuple[int, str]:
    """The exit status and the line for a monitoring system; the worst consumer decides."""
    worst = max(rows, key=lambda row: int(row["dead_count"]), default=None)
    total = sum(row["dead_count"] for row in rows)
    most = 0 if worst is None else worst["dead_count"]
    code = 2 if most > crit else 1 if most > warn else 0
    word = ("OK", "WARNING", "CRITICAL")[code]
    data = " ".join(f"'{_label(row)}'={row['dead_count']};{warn};{crit};0" for row in rows)
    which = "" if worst is None or not most else f", most in {_label(worst)} ({most})"
    return code, f"DLQ {word} - {total} dead in {amount(len(rows), 'consumer')}{which} | {data}".rstrip(" |")


def _label(row: Row) -> str:
    text = f"{row['channel_id']}/{row['consumer_id']}" if row["channel_id"] else row["consumer_id"]
    return str(text).replace("'", "").replace("=", "_")
