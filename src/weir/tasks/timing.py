"""When a task is pushed by a schedule, from what stands in the code."""

from __future__ import annotations

from importlib.util import find_spec

from weir.errors import InvalidInput, Misconfigured
from weir.model.durations import Duration, to_ms, written_ms
from weir.spec.ir import Timing


def timing_of(timing: str | Duration, *, timezone: str) -> Timing:
    """The timing of a schedule: cron if it is a text with spaces, else a span of time."""
    found = _read(timing, timezone=timezone)
    # Without the packages of a worker cron cannot be read here; then it is checked when it is declared.
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
