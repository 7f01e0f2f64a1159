"""How long Spark's batches took, by the times of the files in its journal."""

from __future__ import annotations

from pathlib import Path

_PLANS = "offsets"
_ENDS = "commits"


def batch_times_ms(checkpoint: Path) -> list[float]:
    """The time of each batch in the journal, in order: from the file of its plan to the file of its end."""
    ended = [int(note.name) for note in (checkpoint / _ENDS).iterdir() if note.name.isdigit()]
    return [
        (_time_ns(checkpoint / _ENDS / str(number)) - _time_ns(checkpoint / _PLANS / str(number))) / 1e6
        for number in sorted(ended)
        if (checkpoint / _PLANS / str(number)).exists()
    ]


def _time_ns(note: Path) -> int:
    return note.stat().st_mtime_ns
