"""`weir check`: the gates that CI runs before the tests."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from dev import ROOT
from dev.deploy import deploy_checks, ensure_linters, verify_units
from dev.docs import build_command, site_environment
from dev.gates import problems

app = typer.Typer()

_BIN = Path(sys.executable).parent
_FOLDERS = ("src", "tests", "benches", "dev", "examples", "hatch_build.py")


@app.command()
def check(
    deploy: Annotated[
        bool, typer.Option("--deploy", help="Check the files in `deploy/` with their linters instead.")
    ] = False,
) -> None:
    """Check format, lint, types, layers, headers of Lua and SQL, and the site; fail if any gate fails."""
    failed = _failed_in_deploy() if deploy else _failed_in_code()
    if failed:
        typer.echo(f"weir: failed: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


def _failed_in_code() -> list[str]:
    tools = {
        "format": [str(_BIN / "ruff"), "format", "--check", "--quiet", *_FOLDERS],
        "lint": [str(_BIN / "ruff"), "check", "--quiet", *_FOLDERS],
        "types": [str(_BIN / "mypy"), "--no-error-summary"],
        "layers": [str(_BIN / "lint-imports"), "--no-logo"],
        "site": build_command(),
    }
    failed = [name for name, argv in tools.items() if not _passes(name, argv)]
    return failed if _finds_nothing("headers", problems) else [*failed, "headers"]


def _failed_in_deploy() -> list[str]:
    ensure_linters(lambda text: typer.echo(f"weir: {text}", err=True))
    failed = [name for name, argv in deploy_checks() if not _passes(name, argv)]
    return failed if _finds_nothing("units", lambda: verify_units().splitlines()) else [*failed, "units"]


def _passes(name: str, argv: list[str]) -> bool:
    started = time.monotonic()
    done = subprocess.run(argv, cwd=ROOT, env=site_environment(), capture_output=True, text=True)
    _report(name, passed=done.returncode == 0, seconds=time.monotonic() - started)
    if done.returncode != 0:
        typer.echo((done.stdout + done.stderr).strip())
    return done.returncode == 0


def _finds_nothing(name: str, look: Callable[[], list[str]]) -> bool:
    started = time.monotonic()
    found = look()
    _report(name, passed=not found, seconds=time.monotonic() - started)
    for line in found:
        typer.echo(line)
    return not found


def _report(name: str, *, passed: bool, seconds: float) -> None:
    typer.echo(f"{name:<8} {'ok' if passed else 'FAILED'} ({seconds:.1f} s)")
