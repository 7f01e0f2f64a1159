"""Commands of worker processes that note in a file what they run."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from weir.worker import Commands, Context

app = Commands()


@app.command("Thing.Do")
async def do(number: int, pause_s: float, context: Context) -> None:
    _note("began", number, context.attempt)
    try:
        await asyncio.sleep(pause_s)
    except asyncio.CancelledError:
        _note("cancelled", number, context.attempt)
        raise
    _note("ended", number, context.attempt)


def _note(what: str, number: int, attempt: int) -> None:
    with Path(os.environ["WORKER_NOTES"]).open("a") as notes:
        notes.write(f"{what} {number} {attempt} {os.getpid()}\n")
