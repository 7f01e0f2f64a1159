"""`weir explain QUEUE`: why a queue is backed up, the evidence, and whether it will drain in time."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from weir.cli.api import ApiScope, about_environment, ask_api
from weir.cli.options import JsonOption
from weir.cli.output import print_result

app = typer.Typer()

# Names of figures are shorter than this; error texts may be longer.
_WIDEST = 40


@app.command()
@about_environment
def explain(
    scope: ApiScope,
    queue: Annotated[str, typer.Argument(help="Name of the queue.")],
    recent: Annotated[
        str,
        typer.Option(
            help="How long `recent` is, `15s` to `15m`; it is compared with the six times as long before."
        ),
    ] = "5m",
    as_json: JsonOption = False,
) -> None:
    """Say why a queue is backed up or not, with the evidence and the outlook."""
    found = ask_api(scope, lambda api: api.get("queues", queue, "explain", recent=recent))
    print_result(found, _text(found), as_json=as_json)


def _text(found: dict[str, Any]) -> str:
    lines = [f"{found['queue']}: {_words(found['cause'])}", f"  {found['summary']}"]
    lines += [f"  {found['recovered']}"] if found["recovered"] else []
    lines += ["", *_table(found["evidence_table"])]
    lines += [f"  also: {_words(one['cause'])} ({one['summary']})" for one in found["also"]]
    return "\n".join([*lines, "", f"  {found['outlook']}"])


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """The evidence as columns; an error text is long, so its number stands before it."""
    short = [row for row in rows if len(row["what"]) <= _WIDEST]
    width = max((len(row["what"]) for row in short), default=0)
    now = max((len(row["now"]) for row in short), default=0)
    lines = [
        f"  {row['what']:<{width}}  {row['now']:<{now}}"
        + (f"  usually {row['usual']}" if row["usual"] is not None else "")
        for row in short
    ]
    lines += [f"  {row['now']} failed with: {row['what']}" for row in rows if row not in short]
    return [line.rstrip() for line in lines]


def _words(cause: str) -> str:
    return cause.replace("_", " ")
