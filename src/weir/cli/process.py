"""`weir process`: the running programs of Weir, their health and their figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, ApiSession, about_environment, ask_api
from weir.cli.options import JsonOption
from weir.cli.output import Columns, print_fields, print_items, print_json, shown
from weir.cli.tables import id_column, long_column, number_column
from weir.errors import NotFound
from weir.model.wording import duration

app = typer.Typer(no_args_is_help=True)

PeriodOption = Annotated[str, typer.Option(help="How far back to look, such as `5m` or `2h`.")]
AllOption = Annotated[
    bool,
    typer.Option("--all", help="Show the processes of every environment, with their figures; for operators."),
]


@app.command("list")
@about_environment
def list_processes(
    scope: ApiScope, period: PeriodOption = "5m", everywhere: AllOption = False, as_json: JsonOption = False
) -> None:
    """List the processes that served an environment; figures of shared processes are for operators."""
    found = ask_api(scope, lambda api: _list(api, period=period, everywhere=everywhere))
    columns: Columns = {
        id_column(): "worker_id",
        "role": "role",
        "health": "health",
        number_column("pool"): "pool_size",
        number_column("pushes"): _figure("pushes"),
        number_column("pops"): _figure("pops"),
        number_column("acks"): _figure("acks"),
        number_column("deaths"): _figure("deaths"),
        number_column("errors"): _figure("errors"),
        number_column("lag p99"): lambda row: _span(row["figures"]["lag_p99_ms"]),
        long_column("last seen"): "last_seen",
        long_column("host"): _host,
    }
    print_items(found, columns, as_json=as_json)


@app.command("show")
@about_environment
def show_process(
    worker_id: Annotated[str, typer.Argument(help="Id of the process, as `weir process list` shows it.")],
    scope: ApiScope,
    period: PeriodOption = "5m",
    everywhere: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show one process with all of its figures, and per queue the lag of the messages that it got."""

    async def ask(api: ApiSession) -> dict[str, Any]:
        found = await _list(api, period=period, everywhere=everywhere)
        for one in found:
            if one["worker_id"] == worker_id:
                query = {"period": period, "all_environments": everywhere or None}
                queues = await api.get("workers", worker_id, "queues", **query)
                return {**one, "queues": queues["items"]}
        raise NotFound(f"no process `{worker_id}` reported in the last {period}; see `weir process list`")

    document = ask_api(scope, ask)
    if as_json:
        print_json(document)
        return
    process = {name: value for name, value in document.items() if name != "queues"}
    print_fields({**process, "figures": _rounded(process["figures"])}, as_json=False)
    columns: Columns = {
        "queue": _queue,
        number_column("pops"): "pops",
        **{number_column(name): _lag(name) for name in ("mean", "p50", "p95", "p99", "max")},
    }
    print_items(document["queues"], columns, as_json=False)


async def _list(api: ApiSession, *, period: str, everywhere: bool) -> list[dict[str, Any]]:
    found = await api.get("workers", period=period, all_environments=everywhere or None)
    return list(found["workers"])


def _figure(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: shown(row["figures"][name])


def _lag(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: _span(row[f"lag_{name}_ms"])


def _span(time_ms: float | None) -> str:
    return "" if time_ms is None else duration(round(time_ms))


def _rounded(figures: dict[str, Any]) -> dict[str, Any]:
    """The figures as people read them: whole milliseconds, and rates with two digits."""
    return {
        name: (round(value) if name.endswith("_ms") else round(value, 2))
        if isinstance(value, float)
        else value
        for name, value in figures.items()
    }


def _host(row: dict[str, Any]) -> str:
    return "" if row["hostname"] is None else f"{row['hostname']}:{row['pid']}"


def _queue(row: dict[str, Any]) -> str:
    return "other queues" if row["queue"] is None else str(row["queue"])
