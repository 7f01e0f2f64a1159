"""The command that the webhook bench's worker runs; it only returns its argument."""

from __future__ import annotations

from weir.worker import Commands

app = Commands()


@app.command("Bench.Take")
async def take(number: int) -> int:
    return number
