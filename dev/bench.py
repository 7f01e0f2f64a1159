"""`weir bench NAME`: runs one bench, and prints its figures as one JSON object."""

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
    "client": "push, consume and work through the client, beside the clients of other queues",
    "broker": "messages in and out of Redis, beside other queues on the same server",
    "http": "push and pop over HTTP against a bare route",
    "neighbour": "the pushes of one tenant while another does the worst that it may",
    "webhook": "signed webhooks against a bare route with the same check, and a burst",
    "load": "four times the capacity: goodput, order, waiting operations and how fast they drain",
    "dlq": "dead letters by the tens of millions: counts, groups, deaths, redrive, purge",
    "pipeline": "events from the streams to queryable rows, beside a plain consumer",
    "designs": "designs of a batch in turns: where events are added up, and where the archive is written",
    "alerts": "how long one evaluation of a thousand rules takes",
    "outbox": "how fast a full outbox is relayed into a queue, and the cost of a push in a transaction",
    "lives": "how exact the reasons of waits are, how fast messages are shown and found, the cost of lives",
    "sizing": "the size of messages, events, metrics, lives and dead letters in memory and on disk",
    "query": "how fast the warehouse answers on full tiers",
}
"""Name -> what it measures. Each is a module of `benches`: `run(*, quick, rows, events, only) -> dict`."""


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="Name of the bench; left out: list all benches.")] = "",
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Run a smaller bench, in a few minutes at most; its figures have the same names."
        ),
    ] = False,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, help="Number of rows, for benches that read it.")
    ] = None,
    events: Annotated[
        int | None, typer.Option("--events", min=1_000, help="Number of events, for benches that read it.")
    ] = None,
    only: Annotated[
        str, typer.Option("--only", help="Parts to run, with commas between; for the bench `neighbour`.")
    ] = "",
    against: Annotated[
        str, typer.Option("--against", help="Revision to compare with: it runs in turns with this checkout.")
    ] = "",
    pairs: Annotated[
        int, typer.Option("--pairs", min=1, help="With `--against`: number of pairs of runs.")
    ] = 5,
    as_json: JsonOption = False,
) -> None:
    """Run a bench and print its figures. With `--json`, the last line is one JSON object."""
    if not name:
        for known, text in BENCHES.items():
            typer.echo(f"{known:<10} {text}")
        return
    if name not in BENCHES:
        raise Misconfigured(f"there is no bench `{name}`; there are: {', '.join(BENCHES) or 'none'}")
    if only and name != "neighbour":
        raise Misconfigured(f"the bench `{name}` has no parts: leave `--only` out")
    if against:
        given = {"--quick": quick, "--rows": rows, "--events": events, "--only": only}
        figures = compare(name, revision=against, pairs=pairs, options=_words(given))
    else:
        figures = import_module(f"benches.{name}").run(quick=quick, rows=rows, events=events, only=only)
    typer.echo(json.dumps(figures) if as_json else json.dumps(figures, indent=2))


def _words(given: Mapping[str, int | bool | str | None]) -> list[str]:
    """The options that were given, as words of a command."""
    found: list[str] = []
    for name, value in given.items():
        if value:
            found += [name] if value is True else [name, str(value)]
    return found
