"""`weir docs`: build the site of `docs/`, or show it while you write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from dev import ROOT

app = typer.Typer()

SITE = ROOT / "build" / "site"
_QUIET = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
"""The theme prints an advertisement about the next version of MkDocs unless it is told not to."""


@app.command()
def docs(
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the site and build it again on each change.")
    ] = False,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="With `--serve`: port on loopback.")] = 8421,
) -> None:
    """Build the site into `build/site`; a broken link makes the command fail."""
    command = serve_command(port) if serve else build_command()
    status = subprocess.run(command, cwd=ROOT, env=site_environment()).returncode
    if status == 0 and not serve:
        typer.echo(f"the site is in {SITE}; open {SITE / 'index.html'}")
    raise typer.Exit(status)


def build_command() -> list[str]:
    """Build all pages; a warning is an error."""
    return [*_mkdocs("build"), "--strict", "--quiet", "--clean", "--site-dir", str(SITE)]


def serve_command(port: int) -> list[str]:
    return [*_mkdocs("serve"), "--dev-addr", f"127.0.0.1:{port}", "--watch", str(ROOT / "dev")]


def site_environment() -> dict[str, str]:
    """The environment of MkDocs, in which its hooks can import `dev` from the checkout."""
    return {**os.environ, **_QUIET, "PYTHONPATH": str(ROOT)}


def _mkdocs(verb: str) -> list[str]:
    return [sys.executable, "-m", "mkdocs", verb, "--config-file", str(Path(ROOT, "mkdocs.yml"))]
