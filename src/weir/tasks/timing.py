"""Reads the timing of `@app.every`: when a schedule pushes a task."""

from __future__ import annotations

from importlib.util import find_spec

from weir.errors import InvalidInput, Misconfigured
from weir.model.durations import Duration, to_ms, written_ms
from weir.spec.ir import Timing


def timing_of(timing: str | Duration, *, timezone: str) -> Timing:
    """The timing of a schedule: an interval if it is a duration or a text such as `30s`, else cron."""
    found = _read(timing, timezone=timezone)
    # Without the packages of a worker cron cannot be checked here. Then declaring the app checks it.
    if find_spec("cronsim") is not None:
        from weir.spec.timing import check_timing

        try:
            check_timing(found)
        except InvalidInput as error:
            raise Misconfigured(f"`@app.every({timing!r})`: {error.message}") from None
    return found


def _read(timing: str | Duration, *, timezone: str) -> Timing:
    if not isinstance(timing, str):
        return Timing(every_ms=to_ms(timing))
    every_ms = written_ms(timing)
    return Timing(cron=timing, timezone=timezone) if every_ms is None else Timing(every_ms=every_ms)
