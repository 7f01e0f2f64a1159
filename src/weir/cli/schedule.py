"""`weir schedule`: show what is pushed when and how the last ticks went; change, pause, resume and run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, ApiSession, about_environment, ask_api
from weir.cli.options import JsonOption, given, with_options
from weir.cli.output import Columns, print_fields, print_items, print_json, print_result, shown_time
from weir.cli.tables import OutputTable, long_column
from weir.errors import InvalidInput
from weir.model.durations import duration_ms
from weir.model.wording import amount, duration

app = typer.Typer(no_args_is_help=True)

Document = Mapping[str, Any]
ScheduleName = Annotated[str, typer.Argument(help="Name of the schedule.")]


def _options(
    queue: Annotated[str | None, typer.Option(help="Queue that each tick pushes into.")] = None,
    cron: Annotated[
        str | None,
        typer.Option(help="Ticks as minute, hour, day, month, day of the week, such as `0 3 * * *`."),
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Interval instead of `--cron`, such as `30s`, `5m` or `2h`.")
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(help="Time zone of `--cron`, such as `Europe/Berlin`; UTC for a new schedule."),
    ] = None,
    payload: Annotated[str | None, typer.Option(help="Payload of each message, as JSON.")] = None,
    missed: Annotated[
        str | None,
        typer.Option(
            help="Which ticks to push that were missed while nothing ran: `skip` (none), `last`, `all`."
        ),
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            help="Whether to `skip` a tick while the message of the last one is not done, or `allow` it."
        ),
    ] = None,
) -> dict[str, Any]:
    """The fields of a schedule that the options give, as the API takes them."""
    found = given(
        queue=queue,
        cron=cron,
        every_ms=None if every is None else duration_ms(every),
        timezone=timezone,
        missed=missed,
        overlap=overlap,
    )
    return found if payload is None else {**found, "payload": _json(payload)}


@app.command("list")
@about_environment
def list_schedules(scope: ApiScope, as_json: JsonOption = False) -> None:
    """List the schedules of an environment with their next tick and their last run."""
    found = ask_api(scope, lambda api: api.get("schedules"))["items"]
    print_items(found, _COLUMNS, as_json=as_json)


@app.command()
@about_environment
def show(scope: ApiScope, schedule: ScheduleName, as_json: JsonOption = False) -> None:
    """Show the fields of a schedule, its next ten ticks and its last runs."""
    found = ask_api(scope, lambda api: api.get("schedules", schedule))
    if as_json:
        print_json(found)
        return
    print_fields(
        {name: value for name, value in found.items() if name not in ("next_ticks_ms", "runs")}, as_json=False
    )
    _print_ticks(found)
    _print_runs(found["runs"])


@app.command()
@about_environment
@with_options(options=_options)
def create(
    scope: ApiScope, options: dict[str, Any], schedule: ScheduleName, as_json: JsonOption = False
) -> None:
    """Create a schedule: `weir schedule create nightly --queue reports --cron "0 3 * * *"`."""
    made = ask_api(scope, lambda api: api.post("schedules", body={"name": schedule, **options}))
    print_result(made, shown_time(made["next_tick_ms"]), as_json=as_json)


@app.command()
@about_environment
@with_options(options=_options)
def change(
    scope: ApiScope, options: dict[str, Any], schedule: ScheduleName, as_json: JsonOption = False
) -> None:
    """Change a schedule; options that are left out stay as they are."""

    async def alter(api: ApiSession) -> dict[str, Any]:
        found = await api.get("schedules", schedule)
        before = {name: found[name] for name in _SAID}
        if "cron" in options:
            before["every_ms"] = None
        if "every_ms" in options:
            before |= {"cron": None, "timezone": "UTC"}
        return await api.put(
            "schedules", schedule, body={**before, **options}, revision=found.get("revision")
        )

    changed = ask_api(scope, alter)
    print_result(changed, shown_time(changed["next_tick_ms"]), as_json=as_json)


@app.command()
@about_environment
def delete(scope: ApiScope, schedule: ScheduleName) -> None:
    """Delete a schedule and its runs; messages that it pushed stay."""
    ask_api(scope, lambda api: api.delete("schedules", schedule))


@app.command()
@about_environment
def pause(scope: ApiScope, schedule: ScheduleName) -> None:
    """Pause a schedule: it pushes nothing until `resume`."""
    ask_api(scope, lambda api: api.post("schedules", schedule, "pause"))


@app.command()
@about_environment
def resume(scope: ApiScope, schedule: ScheduleName) -> None:
    """Resume a schedule with the next tick after now; prints its time in UTC."""
    found = ask_api(scope, lambda api: api.post("schedules", schedule, "resume"))
    typer.echo(shown_time(found["next_tick_ms"]))


@app.command()
@about_environment
def run(scope: ApiScope, schedule: ScheduleName, as_json: JsonOption = False) -> None:
    """Push once now, even if the schedule is paused; `weir schedule show` shows the run."""
    asked = ask_api(scope, lambda api: api.post("schedules", schedule, "run"))
    print_result(asked, shown_time(asked["tick_ms"]), as_json=as_json)


_SAID = ("queue", "cron", "every_ms", "timezone", "payload", "missed", "overlap")


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"`--payload` is not JSON: {error}") from None


def timing_text(schedule: Document) -> str:
    """When a schedule ticks: `0 3 * * * Europe/Berlin` or `every 30 s`."""
    if schedule["cron"] is None:
        return f"every {duration(schedule['every_ms'])}"
    return f"{schedule['cron']} {schedule['timezone']}"


def run_text(run: Document | None) -> str:
    """The outcome of a run in words: `pushed, acked`, `skipped 3 ticks`, `failed`."""
    if run is None:
        return ""
    if run["ticks"] > 1:
        return f"{run['outcome']} {amount(run['ticks'], 'tick')}"
    return f"{run['outcome']}, {run['ended']}" if run["ended"] else str(run["outcome"])


_COLUMNS: Columns = {
    "name": "name",
    "when": timing_text,
    "queue": "queue",
    "next (UTC)": lambda row: "paused" if row["paused"] else shown_time(row["next_tick_ms"]),
    "last (UTC)": lambda row: shown_time((row["last_run"] or {}).get("tick_ms")),
    "outcome": lambda row: run_text(row["last_run"]),
    long_column("problem"): "problem",
}


def _print_ticks(found: Document) -> None:
    table = OutputTable("next (UTC)", title="")
    for tick in found["next_ticks_ms"]:
        table.add_row(shown_time(tick))
    table.print()


def _print_runs(runs: list[Document]) -> None:
    table = OutputTable("tick (UTC)", "outcome", "message", long_column("reason"))
    for run in runs:
        table.add_row(shown_time(run["tick_ms"]), run_text(run), run["message_id"] or "", run["reason"] or "")
    table.print()
