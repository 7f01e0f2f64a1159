"""Reads windows of every queue for the alert evaluator, with one query per tier and kind of figure."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from weir.control.scopes import queue_of_row
from weir.model.durations import DAY_MS, HOUR_MS, MINUTE_MS
from weir.model.names import EnvironmentRef, QueueRef
from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.reading.digests import DigestReader
from weir.warehouse.reading.flows import paces_of
from weir.warehouse.reading.pace import PACE_SPAN_MS, Pace
from weir.warehouse.reading.periods import Resolution
from weir.warehouse.reading.questions import ask_operator
from weir.warehouse.reading.queues import table_of
from weir.warehouse.reading.reader import Answer, Reader
from weir.warehouse.tables import QUEUES, WORKERS

LOOKBACK_MS = 2 * MINUTE_MS
"""How far before a window a level is searched; a queue with messages emits an event every few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A window that begins and ends on buckets of the tier that answers for it."""

    start_ms: int
    end_ms: int
    resolution: Resolution

    @property
    def span_ms(self) -> int:
        return self.end_ms - self.start_ms

    @property
    def whole(self) -> Frame:
        """The same window one bucket earlier, where no bucket is still filling: what a rate is taken over."""
        step_ms = self.resolution.step_ms
        return replace(self, start_ms=self.start_ms - step_ms, end_ms=self.end_ms - step_ms)


def frame_for(*, end_ms: int, window_ms: int) -> Frame:
    """The window that ends with the bucket of `end_ms`, on the finest tier that stays cheap."""
    if window_ms <= 2 * HOUR_MS:
        resolution = Resolution.FIVE_SECONDS
    elif window_ms <= DAY_MS:
        resolution = Resolution.MINUTE
    else:
        resolution = Resolution.HOUR
    step_ms = resolution.step_ms
    end_ms = end_ms - end_ms % step_ms + step_ms
    return Frame(start_ms=end_ms - -(-window_ms // step_ms) * step_ms, end_ms=end_ms, resolution=resolution)


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """A gauge over a window: its lowest, highest and newest value."""

    low: float
    high: float
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """The counts of a queue over a window, and its gauges at the end."""

    counts: Mapping[str, int]
    wait_count: int
    wait_sum_ms: int
    backlog: int
    oldest_age_ms: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    wait_count: int
    backlog: int
    p50_ms: float
    p95_ms: float
    p99_ms: float


class WindowReader:
    def __init__(self, reader: Reader, digests: DigestReader) -> None:
        self._reader = reader
        self._digests = digests

    async def levels(
        self, environments: Iterable[EnvironmentRef], frames: Iterable[Frame]
    ) -> dict[Frame, dict[QueueRef, dict[str, Levels]]]:
        """`backlog` and `oldest_age` of every queue with a row in a window or shortly before, by window."""
        found = await self._rows("window_levels", environments, frames, lookback_s=LOOKBACK_MS // 1_000)
        return {
            frame: {
                queue_of_row(row): {
                    "backlog": _levels(row, "backlog", frame),
                    "oldest_age": _levels(row, "age", frame),
                }
                for row in rows
            }
            for frame, rows in found.items()
        }

    async def sums(
        self, environments: Iterable[EnvironmentRef], frames: Iterable[Frame]
    ) -> dict[Frame, dict[QueueRef, Sums]]:
        found = await self._rows("window_sums", environments, frames)
        return {frame: {queue_of_row(row): _sums(row) for row in rows} for frame, rows in found.items()}

    async def percentiles(
        self, environments: Iterable[EnvironmentRef], frames: Iterable[Frame]
    ) -> dict[Frame, dict[QueueRef, Percentiles]]:
        found = await self._rows("window_percentiles", environments, frames, waits=True)
        return {
            frame: {queue_of_row(row): _percentiles(row) for row in rows} for frame, rows in found.items()
        }

    async def paces(self, environments: Iterable[EnvironmentRef], *, end_ms: int) -> dict[QueueRef, Pace]:
        """The rates at `end_ms` of the queues with waiting messages."""
        frame = frame_for(end_ms=end_ms, window_ms=PACE_SPAN_MS)
        rows = await self._reader.ask(ask_operator("window_paces", **_parameters(environments, frame)))
        return {queue_of_row(row): paces_of(row).pace(end_ms=end_ms) for row in rows}

    async def worker_lag(self, frame: Frame) -> Levels | None:
        """The worst event-loop lag; None if no process reported."""
        rows = await self._reader.ask(
            ask_operator(
                "window_worker_lag",
                table=table_of(WORKERS, frame.resolution),
                start_s=frame.start_ms // 1_000,
                end_s=frame.end_ms // 1_000,
            )
        )
        if not rows:
            return None
        row = rows[0]
        low = row["lag_low_ms"] if _covers(row, frame) else 0.0
        return Levels(low=low, high=row["lag_high_ms"], now=row["lag_now_ms"])

    async def _rows(
        self,
        name: str,
        environments: Iterable[EnvironmentRef],
        frames: Iterable[Frame],
        *,
        waits: bool = False,
        **parameters: Any,
    ) -> dict[Frame, Answer]:
        """The rows of every window. Windows on one tier share a question, because reading costs most."""
        asked = {"environments": [one.names for one in environments], **parameters}
        found: dict[Frame, Answer] = {frame: [] for frame in frames}
        tiers: dict[tuple[Resolution, int], dict[int, Frame]] = defaultdict(dict)
        for frame in found:
            tiers[frame.resolution, frame.end_ms][frame.start_ms // 1_000] = frame

        async def read(by_start: Mapping[int, Frame]) -> None:
            table = table_of(QUEUES, by_start[min(by_start)].resolution)
            question = ask_operator(
                name,
                digests=waits and await self._digests.in_table(table),
                table=table,
                first_s=min(by_start) - asked.get("lookback_s", 0),
                end_s=by_start[min(by_start)].end_ms // 1_000,
                starts_s=sorted(by_start),
                **asked,
            )
            for row in await self._reader.ask(question):
                found[by_start[row["start_s"]]].append(row)

        await asyncio.gather(*map(read, tiers.values()))
        return found


def _sums(row: Mapping[str, Any]) -> Sums:
    return Sums(
        counts={name: int(row[name]) for name in QUEUE_COUNTERS},
        wait_count=row["wait_count"],
        wait_sum_ms=row["wait_sum_ms"],
        backlog=row["backlog_now"],
        oldest_age_ms=row["age_now"],
        running=row["running_now"],
    )


def _percentiles(row: Mapping[str, Any]) -> Percentiles:
    p50, p95, p99 = row["wait_percentiles"]
    return Percentiles(
        wait_count=row["wait_count"], backlog=row["backlog_now"], p50_ms=p50, p95_ms=p95, p99_ms=p99
    )


def _levels(row: Mapping[str, Any], name: str, frame: Frame) -> Levels:
    """The levels of a window; if its beginning has no rows, the value from before the window counts too."""
    before = float(row[f"{name}_before"])
    if not row["buckets"]:
        return Levels(low=before, high=before, now=before)
    low, high = float(row[f"{name}_low"]), float(row[f"{name}_high"])
    if not _covers(row, frame):
        low, high = min(low, before), max(high, before)
    return Levels(low=low, high=high, now=float(row[f"{name}_now"]))


def _covers(row: Mapping[str, Any], frame: Frame) -> bool:
    """Whether there are rows from the beginning of the window on."""
    # A heartbeat may miss a bucket or two without a change of the level.
    return bool(row["first_ms"] <= frame.start_ms + 3 * frame.resolution.step_ms)


def _parameters(environments: Iterable[EnvironmentRef], frame: Frame) -> dict[str, Any]:
    return {
        "table": table_of(QUEUES, frame.resolution),
        "start_s": frame.start_ms // 1_000,
        "end_s": frame.end_ms // 1_000,
        "environments": [one.names for one in environments],
    }
