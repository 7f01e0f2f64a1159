"""`weir annotate TEXT`: note a deploy, or anything else that happened, on every chart."""

from __future__ import annotations

from typing import Annotated

import typer

from weir.cli.api import ApiScope, about_environment, ask_api
from weir.cli.options import JsonOption
from weir.cli.output import print_result

app = typer.Typer()


@app.command()
@about_environment
def annotate(
    scope: ApiScope,
    text: Annotated[str, typer.Argument(help="What happened, in one line, such as `v42 out`.")],
    at_ms: Annotated[
        int | None, typer.Option(min=0, help="When it happened, in milliseconds since 1970; left out: now.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Note what happened; every chart of the environment shows it. Prints the id of the annotation."""
    made = ask_api(scope, lambda api: api.post("annotations", body={"text": text, "at_ms": at_ms}))
    print_result(made, made["id"], as_json=as_json)
