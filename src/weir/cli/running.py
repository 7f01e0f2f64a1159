"""Running a command's asynchronous work until it ends or a signal asks it to."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar, cast

import typer

from weir.cli.service_manager import ping_from_loop, tell_stopping

Result = TypeVar("Result")


def run_until_done(work: Coroutine[Any, Any, Result], *, fast: bool = False) -> Result | None:
    """Run `work`; Ctrl-C, SIGTERM and SIGHUP cancel it, and it cleans up. None if it was stopped.

    `fast` runs it on uvloop, for work that answers requests.
    """
    with asyncio.Runner(loop_factory=_uvloop if fast else None) as runner:
        return runner.run(_run_until_signal(work))


def say(text: str) -> None:
    """Tell whoever runs the command, beside what it prints."""
    typer.echo(f"weir: {text}", err=True)


def import_from_here() -> None:
    """Let modules that settings and options name be found in the current folder, as `python -m` does it."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _uvloop() -> asyncio.AbstractEventLoop:
    import uvloop

    return cast(asyncio.AbstractEventLoop, uvloop.new_event_loop())


async def _run_until_signal(work: Coroutine[Any, Any, Result]) -> Result | None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    pings = loop.create_task(ping_from_loop(), name="watchdog")

    def stop() -> None:
        tell_stopping()
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    try:
        with suppress(asyncio.CancelledError):
            return await task
        return None
    finally:
        pings.cancel()
