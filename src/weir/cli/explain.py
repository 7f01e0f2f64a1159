"""`weir explain QUEUE`: why it is backed up, what shows it, and whether it will drain in time."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from weir.api.alerting import ExplanationView, explanation_view
from weir.cli.alert_desk import AlertDesk, at_alerts
from weir.cli.options import JsonOption
from weir.cli.scope import Place, scoped
from weir.warehouse.reading.periods import parse_period

app = typer.Typer()


@app.command()
@scoped
def explain(
    place: Place,
    queue: Annotated[str, typer.Argument(help="Which queue.")],
    recent: Annotated[str, typer.Option(help="What counts as recent; the usual is six times that.")] = "5m",
    as_json: JsonOption = False,
) -> None:
    """Say why a queue is as it is, with the evidence."""
    recent_ms = parse_period(recent)

    async def work(desk: AlertDesk) -> ExplanationView:
        ref = desk.environment.queue(queue)
        return explanation_view(await desk.room.explain(ref, recent_ms=recent_ms))

    found = at_alerts(place, work)
    typer.echo(json.dumps(found.model_dump()) if as_json else _text(found))


def _text(found: ExplanationView) -> str:
    lines = [f"{found.queue}: {found.cause.replace('_', ' ')}", f"  {found.summary}", ""]
    lines += [f"  - {line}" for line in found.evidence]
    lines += [f"  also: {one['cause'].replace('_', ' ')} ({one['summary']})" for one in found.also]
    drain = "never, at these rates" if found.drain_ms is None else f"in {found.drain_ms / 1_000:,.0f} s"
    lines += ["", f"  empty {drain}; {found.expiring:,} messages will expire first"]
    return "\n".join(lines)
