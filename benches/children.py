"""Processes that a bench starts: commands of the product, which end with the bench."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from weir.embedded.child import Child, ChildCommand

_ROOT = Path(__file__).parents[1]
# A worker finishes its messages before it ends, and Spark its batch.
_PATIENCE_S = 60.0


@asynccontextmanager
async def child(*arguments: str, folder: Path, **settings: str) -> AsyncIterator[Child]:
    """Run Python with these arguments until the end of the block or of the bench."""
    command = ChildCommand(argv=(sys.executable, *arguments), cwd=folder, env=child_environment() | settings)
    process = Child(command, log=folder / "children.log")
    try:
        yield process
    except Exception as error:
        error.add_note("\n".join((f"`{' '.join(arguments)}` said last:", *process.last_lines())))
        raise
    finally:
        await process.stop(patience_s=_PATIENCE_S)


def child_environment() -> dict[str, str]:
    """This process' environment, with the checkout on Python's path, so that a child can import `benches`."""
    path = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
