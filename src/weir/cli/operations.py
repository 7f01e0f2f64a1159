"""`weir operations`: what was queued while the broker was busy or away."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from weir.cli.options import JsonOption
from weir.cli.scope import Desk as Scope
from weir.cli.scope import Place, at_desk, scoped
from weir.cli.tables import OutputTable, id_column, long_column, number_column
from weir.operations.desk import Desk
from weir.operations.model import Status

app = typer.Typer(no_args_is_help=True, help="Queued operations: counts, list, cancel, retry.")

OperationId = Annotated[str, typer.Argument(help="The id of the operation.")]


@app.command()
@scoped
def stats(
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """How many are queued or ended lately, by type and status."""
    rows = at_desk(place, lambda at: _desk(at).stats(at.environment))
    if as_json:
        typer.echo(json.dumps(rows))
        return
    table = OutputTable("type", "priority", "status", number_column("count"), "mean latency")
    for row in rows:
        latency = f"{row['avg_latency_ms'] / 1000:.3f} s"
        table.add_row(row["type"], str(row["priority"]), row["status"], f"{row['count']:,}", latency)
    table.print()


@app.command("list")
@scoped
def list_operations(
    place: Place,
    status: Annotated[Status | None, typer.Option(help="Only these.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only of this queue.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many at most.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Operations, newest first."""
    page = at_desk(
        place,
        lambda at: _desk(at).page(at.environment, status=status, queue=queue, limit=limit),
    )
    if as_json:
        typer.echo(json.dumps(page.operations))
        return
    table = OutputTable(
        id_column(),
        "type",
        "status",
        "queue",
        *(long_column(name) for name in ("partition", "created", "retries", "error")),
    )
    for row in page.operations:
        table.add_row(*_cells(row))
    table.print()


@app.command()
@scoped
def show(
    place: Place,
    operation: OperationId,
) -> None:
    """One operation, with its result."""
    row = at_desk(
        place,
        lambda at: _desk(at).read(at.environment, operation),
    )
    typer.echo(json.dumps(row, indent=2))


@app.command()
@scoped
def cancel(
    place: Place,
    operation: OperationId,
) -> None:
    """Take back an operation that nobody runs yet."""
    row = at_desk(
        place,
        lambda at: _desk(at).cancel(at.environment, operation),
    )
    typer.echo(f"{row['id']} is {row['status']}")


@app.command()
@scoped
def retry(
    place: Place,
    operation: OperationId,
) -> None:
    """Put a failed operation back, behind what is queued now."""
    row = at_desk(
        place,
        lambda at: _desk(at).retry(at.environment, operation),
    )
    typer.echo(f"{row['id']} is {row['status']}")


def _desk(scope: Scope) -> Desk:
    return Desk(database=scope.database, broker=scope.broker)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    created = datetime.fromtimestamp(row["created_ms"] / 1000, UTC)
    return (
        row["id"],
        row["type"],
        row["status"],
        row["queue"],
        row["partition"] or "",
        f"{created:%Y-%m-%d %H:%M:%S}",
        f"{row['retry_count']}/{row['max_retries']}",
        row["error"] or "",
    )
