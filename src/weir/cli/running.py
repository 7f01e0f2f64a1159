"""Runs a command's asynchronous work until it ends, or until a signal stops it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeVar, cast

import typer

from weir.cli.service_manager import ping_from_loop, tell_stopping

Result = TypeVar("Result")
_FIRST_WORD_S = 2.0
_NEXT_WORD_S = 10.0
AFTER_DRAIN_S = 5.0
"""Between the end of the drain time and the end of the process."""


def run_until_done(
    work: Coroutine[Any, Any, Result],
    *,
    fast: bool = False,
    doing: str | None = None,
    drain_s: float | None = None,
) -> Result | None:
    """Run `work`; Ctrl-C, SIGTERM and SIGHUP cancel it, and it cleans up. None if it was stopped.

    `fast` runs it on uvloop, for work that answers requests. `doing` is printed while the user waits. With
    `drain_s` the process ends that long and 5 s after the signal, whatever has not ended by itself.
    """
    with (
        telling(doing) if doing else nullcontext(),
        asyncio.Runner(loop_factory=_uvloop if fast else None) as runner,
    ):
        return runner.run(_run_until_signal(work, drain_s))


@contextmanager
def telling(doing: str) -> Iterator[None]:
    """Print `doing` if the block takes longer than two seconds, and again every ten seconds.

    A thread prints it, because the block may keep the event loop or Spark's JVM busy.
    """
    done, started_s = threading.Event(), time.monotonic()

    def tell() -> None:
        pause_s = _FIRST_WORD_S
        while not done.wait(pause_s):
            say(f"{doing} … {time.monotonic() - started_s:.0f} s")
            pause_s = _NEXT_WORD_S

    thread = threading.Thread(target=tell, name="telling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def say(text: str) -> None:
    """Print a line to standard error, apart from the output of the command."""
    typer.echo(f"weir: {text}", err=True)


def import_from_here() -> None:
    """Let Python import modules of the current folder that settings and options name, like `python -m`."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _uvloop() -> asyncio.AbstractEventLoop:
    import uvloop

    return cast(asyncio.AbstractEventLoop, uvloop.new_event_loop())


def _leave_after(limit_s: float) -> None:
    """End this process after a time, unless it has ended: nothing can end a thread that hangs.

    Python waits for its threads at exit, so this happens in a thread for which it does not wait.
    """

    def leave() -> None:
        time.sleep(limit_s)
        busy = ", ".join(sorted(one.name for one in threading.enumerate() if not one.daemon))
        say(f"not ended {limit_s:g} s after the signal to stop; left behind: {busy}")
        sys.stdout.flush()
        os._exit(1)

    threading.Thread(target=leave, name="leaving", daemon=True).start()


async def _run_until_signal(work: Coroutine[Any, Any, Result], drain_s: float | None) -> Result | None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    pings = loop.create_task(ping_from_loop(), name="watchdog")

    def stop() -> None:
        tell_stopping()
        if drain_s is not None and not task.cancelling():
            _leave_after(drain_s + AFTER_DRAIN_S)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    try:
        with suppress(asyncio.CancelledError):
            return await task
        return None
    finally:
        pings.cancel()
