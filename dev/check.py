"""`weir check`: what CI runs before the tests."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import typer

from dev import ROOT
from dev.gates import problems

app = typer.Typer()

_BIN = Path(sys.executable).parent
_FOLDERS = ("src", "tests", "benches", "dev")


@app.command()
def check() -> None:
    """Format, lint, types, layers, headers of Lua and SQL. Every gate runs; any failure fails."""
    tools = {
        "format": [str(_BIN / "ruff"), "format", "--check", "--quiet", *_FOLDERS],
        "lint": [str(_BIN / "ruff"), "check", "--quiet", *_FOLDERS],
        "types": [str(_BIN / "mypy"), "--no-error-summary"],
        "layers": [str(_BIN / "lint-imports"), "--no-logo"],
    }
    failed = [name for name, argv in tools.items() if not _passes(name, argv)]
    if not _headers():
        failed.append("headers")
    if failed:
        typer.echo(f"weir: failed: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


def _passes(name: str, argv: list[str]) -> bool:
    started = time.monotonic()
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    _report(name, passed=done.returncode == 0, seconds=time.monotonic() - started)
    if done.returncode != 0:
        typer.echo((done.stdout + done.stderr).strip())
    return done.returncode == 0


def _headers() -> bool:
    started = time.monotonic()
    found = problems()
    _report("headers", passed=not found, seconds=time.monotonic() - started)
    for line in found:
        typer.echo(line)
    return not found


def _report(name: str, *, passed: bool, seconds: float) -> None:
    typer.echo(f"{name:<8} {'ok' if passed else 'FAILED'} ({seconds:.1f} s)")
