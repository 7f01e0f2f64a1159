"""The commands of the worker whose metrics are counted by another way."""

from __future__ import annotations

from weir.worker import Commands, Reject

app = Commands()


@app.command("Work.Do")
async def do(kind: str) -> None:
    if kind == "reject":
        raise Reject("never")
    if kind == "fail":
        raise ValueError("not today")
