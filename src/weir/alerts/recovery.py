"""Tells since when a queue that was backed up is well again, from its newest half hour."""

from __future__ import annotations

from dataclasses import dataclass

from weir.errors import Unavailable
from weir.model.durations import MINUTE_MS, SECOND_MS
from weir.model.names import QueueRef
from weir.model.wording import duration, moment
from weir.warehouse.reading.periods import Resolution, window_for
from weir.warehouse.reading.series import Series
from weir.warehouse.reading.warehouse import Warehouse

# A queue counts as backed up while its oldest message has waited longer.
LONG_WAIT_MS = 30 * SECOND_MS
# A recovery that is longer ago is not reported.
LOOKBACK_MS = 30 * MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The end of the last time that a queue was backed up."""

    since_ms: int
    longest_wait_ms: int
    """The longest that a message had waited in the half hour."""

    def summary(self, *, now_ms: int) -> str:
        """One sentence for people."""
        ago = duration(max(now_ms - self.since_ms, 0) // SECOND_MS * SECOND_MS)
        longest = duration(self.longest_wait_ms)
        return f"recovered {ago} ago, at {moment(self.since_ms)}; messages had waited up to {longest}"


async def read_recovery(warehouse: Warehouse, queue: QueueRef, *, now_ms: int) -> Recovery | None:
    """The recovery of a queue; None if it was well all the time, or if ClickHouse does not answer."""
    window = window_for(
        start_ms=now_ms - LOOKBACK_MS, end_ms=now_ms, now_ms=now_ms, resolution=Resolution.FIVE_SECONDS
    )
    try:
        history = await warehouse.history.of_queue(queue, window)
    except Unavailable:
        return None
    return recovery_of(history.series)


def recovery_of(series: Series) -> Recovery | None:
    """The recovery that a series shows; None if its newest known bucket is backed up, or no bucket is."""
    ages = [
        (time_ms, age_ms)
        for time_ms, age_ms in zip(series.times_ms, series.columns["oldest_age_ms"], strict=True)
        if age_ms is not None
    ]
    backed_up = [time_ms for time_ms, age_ms in ages if age_ms > LONG_WAIT_MS]
    if not backed_up or backed_up[-1] == ages[-1][0]:
        return None
    longest_ms = round(max(age_ms for _, age_ms in ages))
    return Recovery(since_ms=backed_up[-1] + series.times_ms.step, longest_wait_ms=longest_ms)
