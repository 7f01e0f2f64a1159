"""`weir dlq`: what died, what it has in common, and what to do about it."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from weir.cli.dlq_tasks import tasks_app
from weir.cli.options import DataDirOption, JsonOption
from weir.cli.scope import ACTOR, Desk, Place, at_desk, scoped
from weir.cli.tables import OutputTable, id_column, long_column, number_column
from weir.deadletters.audit import Auditor
from weir.deadletters.filters import payload_of
from weir.deadletters.groups import list_groups
from weir.deadletters.letters import DeadLetter
from weir.deadletters.summary import ConsumerStatus, read_summary
from weir.errors import InvalidInput, WeirError
from weir.serve.bootstrap import DEFAULT

app = typer.Typer(no_args_is_help=True, help="Dead letters: counts, groups, redrive, purge.")
app.registered_commands += tasks_app.registered_commands

Queue = Annotated[str, typer.Argument(help="The queue.")]
LetterId = Annotated[str, typer.Argument(help="The id of the dead letter.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="How many at most.")]


@app.command()
@scoped
def status(
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """How many are dead, by consumer: exact, from the summary."""
    rows = at_desk(place, _summary)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows]))
        return
    table = OutputTable("channel", "consumer", "queue", number_column("dead"))
    for row in rows:
        table.add_row(row.channel_name, row.consumer_name, row.queue, f"{row.dead_count:,}")
    table.print()


@app.command("list")
@scoped
def list_letters(
    place: Place,
    queue: Queue,
    fingerprint: Annotated[str | None, typer.Option(help="Only this group.")] = None,
    limit: Limit = 50,
    as_json: JsonOption = False,
) -> None:
    """The dead letters of a queue, the newest first."""

    async def work(desk: Desk) -> list[DeadLetter]:
        ref = desk.environment.queue(queue)
        return await desk.room.letters.newest(ref, fingerprint=fingerprint, limit=limit)

    letters = at_desk(place, work)
    if as_json:
        typer.echo(json.dumps([document(letter) for letter in letters]))
        return
    table = OutputTable(id_column(), "died", "attempts", "reason", id_column("group"), long_column("error"))
    for letter in letters:
        attempts = f"{letter.attempts}/{letter.max_attempts}"
        table.add_row(
            letter.id,
            _moment(letter.died_at_ms),
            attempts,
            letter.reason,
            letter.fingerprint,
            letter.error_text[:80],
        )
    table.print()


@app.command()
@scoped
def show(
    place: Place,
    queue: Queue,
    letter_id: LetterId,
) -> None:
    """One dead letter, whole, with what became of it, as JSON."""

    async def work(desk: Desk) -> dict[str, Any]:
        letter = await desk.room.letters.find(desk.environment.queue(queue), letter_id)
        return {**document(letter), "replay_result": await desk.room.letters.fate_of_replay(letter)}

    typer.echo(json.dumps(at_desk(place, work), indent=2))


@app.command()
@scoped
def groups(
    place: Place,
    queue: Annotated[str | None, typer.Option(help="Only this queue.")] = None,
    limit: Limit = 50,
    as_json: JsonOption = False,
) -> None:
    """Errors that look alike, the largest group first."""

    async def work(desk: Desk) -> list[dict[str, Any]]:
        now_ms = desk.room.clock.now_ms()
        found = await list_groups(
            desk.room.database, desk.environment, now_ms=now_ms, queue=queue, limit=limit
        )
        return [asdict(group) for group in found]

    found = at_desk(place, work)
    if as_json:
        typer.echo(json.dumps(found))
        return
    table = OutputTable(
        id_column("group"),
        number_column("dead"),
        number_column("per hour"),
        "since",
        "last",
        "queues",
        long_column("error"),
    )
    for group in found:
        table.add_row(
            group["fingerprint"],
            f"{group['dead_count']:,}",
            f"{group['rate_per_h']:g}",
            _moment(group["first_seen_ms"]),
            _moment(group["last_seen_ms"]),
            ", ".join(group["queues"][:5]),
            group["template"],
        )
    table.print()


@app.command()
@scoped
def replay(
    place: Place,
    queue: Queue,
    letter_id: LetterId,
) -> None:
    """Send one dead letter back to its queue; prints the id of the new message."""

    async def work(desk: Desk) -> str:
        return await desk.room.letters.replay(desk.environment.queue(queue), letter_id, by=ACTOR)

    typer.echo(at_desk(place, work))


@app.command()
@scoped
def delete(
    place: Place,
    queue: Queue,
    letter_id: LetterId,
    force: Annotated[bool, typer.Option("--force", help="Even if it has attempts left.")] = False,
) -> None:
    """Delete one dead letter."""

    async def work(desk: Desk) -> None:
        ref = desk.environment.queue(queue)
        await desk.room.letters.delete(ref, letter_id, by=ACTOR, exhausted_only=not force)

    at_desk(place, work)
    typer.echo(f"deleted {letter_id}", err=True)


@app.command()
@scoped
def check(
    place: Place,
    warn: Annotated[int, typer.Option(min=0, help="More dead than this is a warning.")],
    crit: Annotated[int, typer.Option(min=0, help="More dead than this is critical.")],
    queue: Annotated[str | None, typer.Option(help="Only this queue; else each of them.")] = None,
) -> None:
    """A Nagios check: exit status 0 (OK), 1 (WARNING), 2 (CRITICAL) or 3 (UNKNOWN), and performance data."""
    try:
        if crit < warn:
            raise InvalidInput(f"--crit is {crit} and below --warn, which is {warn}; swap them")
        rows = at_desk(place, _summary)
    except WeirError as error:
        typer.echo(f"DLQ UNKNOWN - {error}")
        raise typer.Exit(3) from None
    code, line = verdict([row for row in rows if queue in (None, row.queue)], warn=warn, crit=crit)
    typer.echo(line)
    raise typer.Exit(code)


@app.command()
def audit(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Recount every consumer now, repair what differs, and print the drift; exit status 1 if any."""

    async def work(desk: Desk) -> dict[str, Any] | None:
        found = await Auditor(desk.room.database).audit(force=True)
        return None if found is None else asdict(found)

    found = at_desk(Place(environment=DEFAULT, data_dir=data_dir), work)
    if found is None:
        typer.echo("another audit is at work", err=True)
        raise typer.Exit(1)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"{found['letters']:,} letters of {found['consumers']} consumers, drift {found['drift']}")
    raise typer.Exit(1 if found["drift"] else 0)


def verdict(rows: list[ConsumerStatus], *, warn: int, crit: int) -> tuple[int, str]:
    """What a monitoring system wants to hear: the worst consumer decides."""
    worst = max(rows, key=lambda row: row.dead_count, default=None)
    total = sum(row.dead_count for row in rows)
    most = 0 if worst is None else worst.dead_count
    code = 2 if most > crit else 1 if most > warn else 0
    word = ("OK", "WARNING", "CRITICAL")[code]
    data = " ".join(f"'{_label(row)}'={row.dead_count};{warn};{crit};0" for row in rows)
    which = "" if worst is None or not most else f", most in {_label(worst)} ({most})"
    return code, f"DLQ {word} - {total} dead in {len(rows)} consumers{which} | {data}".rstrip(" |")


def document(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as JSON."""
    members = asdict(letter)
    for internal in ("seq", "consumer_key", "group_key", "position", "payload"):
        del members[internal]
    payload = payload_of(letter)
    return {
        **members,
        "queue": letter.queue.queue,
        "payload": payload if payload is not None else repr(letter.payload),
    }


def _label(row: ConsumerStatus) -> str:
    text = f"{row.channel_id}/{row.consumer_id}" if row.channel_id else row.consumer_id
    return text.replace("'", "").replace("=", "_")


async def _summary(desk: Desk) -> list[ConsumerStatus]:
    return await read_summary(desk.room.database, desk.principal)


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
