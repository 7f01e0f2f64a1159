"""`weir demo`: everything up on the embedded default, with lifelike traffic, until Ctrl-C."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from weir.cli.extras import require_extras
from weir.cli.options import JsonOption, settings_with
from weir.cli.running import run_until_done

app = typer.Typer()

_DATA_DIR = Path(".weir/demo")
_NOT_READY = {"ok": False, "problem": "stopped before it was ready"}


@app.command()
def demo(
    for_s: Annotated[
        float | None, typer.Option("--for", min=0, help="End after this many seconds with full charts.")
    ] = None,
    speed: Annotated[
        float, typer.Option(min=0.01, max=100, help="Send this many times the usual traffic.")
    ] = 1.0,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="Folder in which the demo keeps its data.")
    ] = _DATA_DIR,
    as_json: JsonOption = False,
) -> None:
    """Start everything, send traffic, and print where to look; Ctrl-C stops every process."""
    require_extras("embedded", "spark")
    from weir.api.logs import configure_logs
    from weir.demo.run import DemoOptions, run_demo

    configure_logs(level="warning")
    summary = run_until_done(
        run_demo(
            settings_with(data_dir),
            DemoOptions(for_s=for_s, speed=speed),
            say=lambda line: typer.echo(line, err=as_json),
        ),
        fast=True,
    )
    if as_json:
        typer.echo(json.dumps(summary or _NOT_READY))
