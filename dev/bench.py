"""`weir bench NAME`: measure, and print the figures as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated

import typer

from benches.against import compare
from weir.cli.options import JsonOption
from weir.errors import Misconfigured

app = typer.Typer()

BENCHES: dict[str, str] = {
    "client": "what users call: push, consume and work, beside what other queues' users call",
    "broker": "messages in and out of Redis, beside other queues on the same server",
    "http": "push and pop over HTTP against a bare route",
    "webhook": "signed webhooks against a bare route with the same check, and a burst",
    "load": "four times capacity: goodput, order, what waits and how fast it drains",
    "dlq": "dead letters by the tens of millions: counts, groups, deaths, redrive, purge",
    "pipeline": "events from the streams to queryable rows, beside a plain consumer",
    "designs": "designs of a batch in turns: where events are added up, and who writes the archive",
    "alerts": "how long one evaluation of a thousand rules takes",
    "outbox": "a full outbox relayed into a queue, and what a push costs a transaction",
    "lives": "how exact the reasons of waits are, how fast messages are shown and found, what lives cost",
    "sizing": "what messages, events, metrics, lives and dead letters take in memory and on disk",
    "query": "how fast the warehouse answers on full tiers",
}
"""Name -> one line of what it measures. Each is a module of `benches` with `run(*, quick) -> dict`."""


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="Which; without one, they are listed.")] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller, in a few minutes at most; same keys.")
    ] = False,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, help="How many rows, where that matters.")
    ] = None,
    events: Annotated[
        int | None, typer.Option("--events", min=1_000, help="How many events, where that matters.")
    ] = None,
    against: Annotated[
        str, typer.Option("--against", help="Another revision to run in turns with this checkout.")
    ] = "",
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="How many pairs of runs with --against.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Measure one thing. The last line is one JSON object with `--json`."""
    if not name:
        for known, text in BENCHES.items():
            typer.echo(f"{known:<10} {text}")
        return
    if name not in BENCHES:
        raise Misconfigured(f"there is no bench `{name}`; there are: {', '.join(BENCHES) or 'none'}")
    if against:
        given = {"--quick": quick, "--rows": rows, "--events": events}
        figures = compare(name, revision=against, pairs=pairs, options=_words(given))
    else:
        figures = import_module(f"benches.{name}").run(quick=quick, rows=rows, events=events)
    typer.echo(json.dumps(figures) if as_json else json.dumps(figures, indent=2))


def _words(given: Mapping[str, int | bool | None]) -> list[str]:
    """The options that were given, as words of a command."""
    found: list[str] = []
    for name, value in given.items():
        if value:
            found += [name] if value is True else [name, str(value)]
    return found
