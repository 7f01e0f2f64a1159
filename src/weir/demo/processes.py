"""The demo's other processes: the pipeline on Spark, which fills in the past first, and a worker."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from weir.embedded.child import Child, Command
from weir.settings import Settings

_PASSED_ON = ("JAVA_HOME", "LANG", "USER", "XDG_RUNTIME_DIR")


@asynccontextmanager
async def running(settings: Settings, *, secrets: dict[str, str]) -> AsyncIterator[dict[str, Child]]:
    """Start both, and end them with the block."""
    folder = settings.embedded.data_dir.absolute()
    python = (sys.executable, "-m")
    children = {
        "pipeline": _child((*python, "weir.demo.pipeline", str(folder)), folder, "pipeline", {}),
        "worker": _child(
            (*python, "weir.cli", "worker", "--app", "weir.demo.handlers:app", "--data-dir", str(folder),
             "--concurrency", "32"),
            folder, "worker", secrets,
        ),
    }  # fmt: skip
    try:
        yield children
    finally:
        for child in children.values():
            await child.stop(patience_s=15)


def _child(argv: tuple[str, ...], folder: Path, name: str, secrets: dict[str, str]) -> Child:
    passed = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    command = Command(argv=argv, cwd=folder, env={**passed, **secrets})
    return Child(command, log=folder / "logs" / f"{name}.log")
