"""Counts what one process does: its messages, its transactions, its failed store operations, its retries.

The seams of the stores count here (`broker.observed`, `control.database`, `warehouse.reading.reader`), so
that every caller is counted exactly once. `sampler` takes the counts every five seconds.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from weir.model.message import Delivery
from weir.model.names import QueueRef

# An `array` of this type holds 32-bit numbers, as the samples of an event.
LAGS = "I"
_NONE: array[int] = array(LAGS)
_MAX_LAG_MS = (1 << 32) - 1


TOTALS = ("pushes", "pops", "acks", "deaths", "jobs_done", "transactions", "errors")
"""The counts whose totals are published too, for Prometheus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedSpan:
    """The counts since the last time that they were taken."""

    values: dict[str, int]
    lags_ms: dict[QueueRef, array[int]]
    """For each queue, how long each of its messages had been available when this process got it."""


class ProcessCounts:
    """Counts of one process. Its methods only add, because every message passes through them."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        # Plain dictionaries: a `Counter` took twice as long per operation.
        self._totals = dict.fromkeys(TOTALS, 0)
        self._values = dict.fromkeys(TOTALS, 0)
        self._lags_ms: dict[QueueRef, array[int]] = {}
        self._retries = RetryTimes(monotonic=monotonic)

    def count_pushes(self, count: int) -> None:
        """Count messages that this process put into queues. Refused ones and duplicates do not count."""
        self._values["pushes"] += count

    def count_pops(self, deliveries: Sequence[Delivery]) -> None:
        """Count messages that this process got, with their lags."""
        self._values["pops"] += len(deliveries)
        queue: QueueRef | None = None
        lags = _NONE
        for one in deliveries:
            # Deliveries of one queue follow each other and share one `QueueRef`, so it is looked up once.
            if one.lease.queue is not queue:
                queue = one.lease.queue
                lags = self._lags_of(queue)
            lags.append(one.wait_ms if one.wait_ms < _MAX_LAG_MS else _MAX_LAG_MS)

    def _lags_of(self, queue: QueueRef) -> array[int]:
        found = self._lags_ms.get(queue)
        if found is None:
            found = self._lags_ms[queue] = array(LAGS)
        return found

    def count_acks(self, count: int) -> None:
        self._values["acks"] += count

    def count_deaths(self, count: int) -> None:
        """Count messages that died in a call of this process, for whatever reason."""
        self._values["deaths"] += count

    def count_retries(self, delays_ms: Sequence[int]) -> None:
        """Note messages that failed, each with the delay until its retry."""
        self._retries.add(delays_ms)

    def count_transaction(self) -> None:
        self._values["transactions"] += 1

    def count_job(self) -> None:
        """Count a message whose handler succeeded and which is settled."""
        self._values["jobs_done"] += 1

    def count_error(self) -> None:
        """Count a store operation that failed."""
        self._values["errors"] += 1

    def backoff(self) -> int:
        """How many messages that failed here wait for their retry now."""
        return self._retries.waiting()

    def take(self) -> CountedSpan:
        """The counts since the last call; counting begins again."""
        values, lags = self._values, self._lags_ms
        self._values, self._lags_ms = dict.fromkeys(TOTALS, 0), {}
        for name, count in values.items():
            self._totals[name] += count
        if lags:
            values["lag_count"] = sum(map(len, lags.values()))
            values["lag_ms_sum"] = sum(map(sum, lags.values()))
            values["lag_ms_max"] = max(map(max, lags.values()))
        return CountedSpan(values={name: count for name, count in values.items() if count}, lags_ms=lags)

    def totals(self) -> dict[str, int]:
        """Every count since the process began, by the names in `TOTALS`."""
        return {name: self._totals[name] + self._values[name] for name in TOTALS}


class RetryTimes:
    """How many retries are not due yet, by whole seconds: as exact as a sample per second can show."""

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._due: Counter[int] = Counter()
        self._seconds: list[int] = []
        """A heap of the keys of `_due`."""
        self._waiting = 0

    def add(self, delays_ms: Sequence[int]) -> None:
        now_s = self._monotonic()
        for delay_ms in delays_ms:
            if delay_ms > 0:
                second = int(now_s + delay_ms / 1_000)
                if second not in self._due:
                    heappush(self._seconds, second)
                self._due[second] += 1
                self._waiting += 1

    def waiting(self) -> int:
        now_s = int(self._monotonic())
        while self._seconds and self._seconds[0] < now_s:
            self._waiting -= self._due.pop(heappop(self._seconds))
        return self._waiting
