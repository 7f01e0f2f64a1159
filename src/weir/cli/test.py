"""`weir test`: the tests, on real servers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import typer

app = typer.Typer()

_ROOT = Path(__file__).parents[3]
_FREE_FORM = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command(context_settings=_FREE_FORM)
def test(ctx: typer.Context) -> None:
    """Run pytest with two workers; `--faults` adds the long ones. Other arguments go to pytest."""
    arguments = list(ctx.args)
    _ensure_browser()
    status = subprocess.run(
        [sys.executable, "-m", "pytest", *_workers(arguments), *arguments], cwd=_ROOT
    ).returncode
    raise typer.Exit(status)


def _workers(arguments: list[str]) -> list[str]:
    """Two workers pay off for a whole run; a chosen test runs alone and shows its output."""
    chosen = any(not argument.startswith("-") for argument in arguments)
    given = any(argument.startswith(("-n", "--pdb", "-s")) for argument in arguments)
    if chosen or given or (os.cpu_count() or 1) < 2:
        return []
    return ["-n", "2", "--dist", "loadfile"]


def _ensure_browser() -> None:
    """The pages are tested in Chromium; where apt can install it without asking, it does."""
    if shutil.which("chromium") or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    typer.echo("weir: installing chromium, for the tests of the dashboard", err=True)
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "chromium"]
    if subprocess.run(install, stdout=subprocess.DEVNULL).returncode:
        subprocess.run(["apt-get", "update", "-q"], stdout=subprocess.DEVNULL)
        subprocess.run(install, stdout=subprocess.DEVNULL)
