"""`weir operation`: pushes and settlements that were stored while the broker was busy or away."""

from __future__ import annotations

from typing import Annotated

import typer

from weir.cli.api import ApiScope, about_environment, ask_api
from weir.cli.options import JsonOption, LimitOption
from weir.cli.output import Columns, print_fields, print_items, print_json, shown_time
from weir.cli.tables import id_column, long_column, number_column
from weir.operations.model import OperationStatus

app = typer.Typer(no_args_is_help=True)

OperationId = Annotated[str, typer.Argument(help="Id of the operation, as the answer to the push gave it.")]


@app.command()
@about_environment
def stats(scope: ApiScope, as_json: JsonOption = False) -> None:
    """Count the operations of the last hour by type and status, and show how busy the API is."""
    found = ask_api(scope, lambda api: api.get("operations", "stats"))
    if as_json:
        print_json(found)
        return
    columns: Columns = {
        "type": "operation_type",
        "priority": "priority",
        "status": "status",
        number_column("count"): "count",
        "mean latency": lambda row: f"{row['avg_latency_seconds']:.3f} s",
    }
    print_items(found["stats"], columns, as_json=False)
    health = found["system_health"]
    typer.echo(
        f"admission would {health['decision']} a push now ({health['in_flight']} of {health['limit']} "
        f"requests in progress, {health['queue_depth']:,} operations waiting)",
        err=True,
    )


@app.command("list")
@about_environment
def list_operations(
    scope: ApiScope,
    status: Annotated[
        OperationStatus | None, typer.Option(help="Show only operations in this status.")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Show only operations of this queue.")] = None,
    limit: LimitOption = 50,
    as_json: JsonOption = False,
) -> None:
    """List the operations of an environment, newest first."""
    query = {"status": None if status is None else status.value, "queue": queue, "limit": limit}
    found = ask_api(scope, lambda api: api.get("operations", **query))["operations"]
    columns: Columns = {
        id_column(): "id",
        "type": "operation_type",
        "status": "status",
        "queue": "queue",
        long_column("partition"): "partition",
        long_column("created"): lambda row: shown_time(row["created_ms"]),
        long_column("retries"): lambda row: f"{row['retry_count']} of {row['max_retries']}",
        long_column("error"): "error_message",
    }
    print_items(found, columns, as_json=as_json)


@app.command()
@about_environment
def show(scope: ApiScope, operation: OperationId, as_json: JsonOption = False) -> None:
    """Show the state of one operation, and the outcome of its messages once it is done."""
    print_fields(ask_api(scope, lambda api: api.get("operations", operation)), as_json=as_json)


@app.command()
@about_environment
def cancel(scope: ApiScope, operation: OperationId, as_json: JsonOption = False) -> None:
    """Cancel an operation that no process runs yet."""
    _change(scope, operation, "cancel", as_json=as_json)


@app.command()
@about_environment
def retry(scope: ApiScope, operation: OperationId, as_json: JsonOption = False) -> None:
    """Put a failed operation back into the queue, behind everything that is queued now."""
    _change(scope, operation, "retry", as_json=as_json)


def _change(scope: ApiScope, operation: str, verb: str, *, as_json: bool) -> None:
    changed = ask_api(scope, lambda api: api.post("operations", operation, verb))
    if as_json:
        print_json(changed)
    else:
        typer.echo(f"{changed['id']} is {changed['status']}")
