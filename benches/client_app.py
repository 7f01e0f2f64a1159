"""The commands of the client bench's worker. They note when they were called, and write the notes at the end.

weir worker --app benches.client_app:app
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from weir.worker import Commands

NOTES = "BENCH_NOTES"
"""The environment variable that names the folder for the notes."""

app = Commands()


class CallNotes:
    """When a command was called, in nanoseconds of the machine's monotonic clock."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._first_ns = 0
        self._count = 0
        self._waits_ns: list[int] = []

    def note(self, *, last: int, sent_ns: int | None = None) -> None:
        """Note one call. Call number `last` writes the notes, and the next call begins new ones."""
        now_ns = time.monotonic_ns()
        self._first_ns = self._first_ns or now_ns
        self._count += 1
        if sent_ns is not None:
            self._waits_ns.append(now_ns - sent_ns)
        if self._count < last:
            return
        note = {"count": self._count, "took_ns": now_ns - self._first_ns, "waits_ns": self._waits_ns}
        self._write(json.dumps(note))
        self._first_ns, self._count, self._waits_ns = 0, 0, []

    def _write(self, text: str) -> None:
        folder = Path(os.environ[NOTES])
        unfinished = folder / f"{self._name}.unfinished"
        unfinished.write_text(text)
        # Renamed when it is complete, so that the waiting bench never reads half a file.
        unfinished.rename(folder / self._name)


_noop, _paced = CallNotes("noop"), CallNotes("paced")


@app.command("Bench.Noop")
async def noop(last: int) -> None:
    _noop.note(last=last)


@app.command("Bench.Paced")
async def paced(last: int, sent_ns: int) -> None:
    _paced.note(last=last, sent_ns=sent_ns)
