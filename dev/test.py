"""`weir test`: runs the tests on real servers."""

from __future__ import annotations

import os
import subprocess
import sys

import typer

from dev import ROOT
from dev.tools import ensure_tools

app = typer.Typer()

_FREE_FORM = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command(context_settings=_FREE_FORM)
def test(ctx: typer.Context) -> None:
    """Run pytest with two processes; `--faults` adds the long tests. Other arguments go to pytest."""
    arguments = list(ctx.args)
    ensure_tools(lambda text: typer.echo(f"weir: {text}", err=True))
    status = subprocess.run(
        [sys.executable, "-m", "pytest", *_workers(arguments), *arguments], cwd=ROOT
    ).returncode
    raise typer.Exit(status)


def _workers(arguments: list[str]) -> list[str]:
    """Options for two processes, which pay off for a whole run. Chosen tests run in one, and show output."""
    chosen = any(not argument.startswith("-") for argument in arguments)
    given = any(argument.startswith(("-n", "--pdb", "-s")) for argument in arguments)
    if chosen or given or (os.cpu_count() or 1) < 2:
        return []
    # `tests/support/order.py` sorts the files.
    return ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
