"""`weir worker --watch`: runs a worker again whenever a Python file below the current folder changes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from weir.cli.running import say
from weir.embedded.child import Child, ChildCommand
from weir.model.asyncio_tasks import run_to_end

_LOOK_EVERY_S = 0.3
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


async def watch_worker(arguments: Sequence[str], *, drain_s: float) -> None:
    """Keep one worker running on the newest code until cancelled. Each drains before the next one starts."""
    command = ChildCommand(
        argv=(sys.executable, "-m", "weir.cli", "worker", *arguments),
        cwd=Path.cwd(),
        env=os.environ,
        umask=None,
    )
    while True:
        seen = await asyncio.to_thread(_stamps, Path.cwd())
        child = Child(command, log=None)
        try:
            await _wait_for_change(child, seen)
        finally:
            await run_to_end(child.stop(patience_s=drain_s))


async def _wait_for_change(child: Child, seen: dict[Path, int]) -> None:
    """Wait until a file changes, also if the worker ended before, as it does on an error in the code."""
    told = False
    while (now := await asyncio.to_thread(_stamps, Path.cwd())) == seen:
        if child.status() is not None and not told:
            told = True
            say(f"the worker ended with {child.status()}; it starts again when a file changes")
        await asyncio.sleep(_LOOK_EVERY_S)
    changed = sorted(path for path in {*now, *seen} if now.get(path) != seen.get(path))
    say(f"{changed[0]} changed; the worker starts again")


def _stamps(folder: Path) -> dict[Path, int]:
    """When each Python file was changed last."""
    return dict(_files(folder))


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        for name in names:
            if name.endswith(".py"):
                path = Path(place, name)
                try:
                    yield path.relative_to(folder), path.stat().st_mtime_ns
                except FileNotFoundError:
                    continue
