"""Processes that a bench runs beside itself: whole commands of the product, which end when the bench does."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from weir.embedded.child import Child, ChildCommand

_ROOT = Path(__file__).parents[1]
# A worker finishes what it has begun, and Spark its batch.
_PATIENCE_S = 60.0


@asynccontextmanager
async def child(*arguments: str, folder: Path, **settings: str) -> AsyncIterator[Child]:
    """Python with these arguments, for as long as the block runs or the bench lives."""
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
    """Ours, with the checkout on Python's path: a child runs elsewhere and may import `benches`."""
    path = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
