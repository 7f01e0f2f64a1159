"""Tells how far the warehouse is complete: where telemetry was lost, and where it has not landed yet."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from weir.model.clock import Clock
from weir.model.wording import moment
from weir.telemetry.stream_ids import StreamId
from weir.telemetry.switch import OffSpan, ShardSwitch
from weir.warehouse.reading.questions import ask_operator
from weir.warehouse.reading.reader import Reader
from weir.warehouse.reading.series import TimeSpan
from weir.warehouse.tables import GapKind

STALE_AFTER_MS = 60_000
"""If telemetry is further behind than this, nothing is judged by it: rules are unknown, rates are null."""


class Tails(Protocol):
    """Where the metric streams end right now."""

    async def tails(self, metric: str) -> Mapping[int, StreamId]:
        """The newest id ever written, by shard; shards without any event are left out."""

    async def switches(self) -> Sequence[ShardSwitch]:
        """The switch of every shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Until when each shard of a metric is complete."""

    now_ms: int
    behind: Mapping[int, int]
    """For shards whose newest events have not landed: the time up to which they have."""
    off: Mapping[int, OffSpan] = field(default_factory=dict)
    """For shards whose metrics are off: the span that has not ended. Nothing is known after its start."""

    def complete_until_ms(self, shard: int, *, now_ms: int | None = None) -> int:
        """Until when a shard is complete: at most until `now_ms`, or else until this was read."""
        end_ms = self.now_ms if now_ms is None else now_ms
        if shard in self.off:
            end_ms = min(self.off[shard].from_ms, end_ms)
        return min(self.behind.get(shard, end_ms), end_ms)

    @property
    def all_complete_until_ms(self) -> int:
        """Until when every shard is complete."""
        shards = {*self.behind, *self.off}
        return min(map(self.complete_until_ms, shards), default=self.now_ms)

    def lag_ms(self, shard: int) -> int:
        """How far the pipeline is behind; a shard whose metrics are off has nothing to land."""
        return self.now_ms - self.behind.get(shard, self.now_ms)

    def is_off(self, shard: int) -> bool:
        return shard in self.off

    def is_stale(self, shard: int) -> bool:
        return self.is_off(shard) or self.lag_ms(shard) > STALE_AFTER_MS


def freshness_of(
    *,
    now_ms: int,
    landed: Mapping[int, StreamId],
    tails: Mapping[int, StreamId],
    switches: Sequence[ShardSwitch] = (),
) -> Freshness:
    """Compare the landed positions with the ends of the streams.

    A shard whose newest event has landed is complete until now, however long it has been idle, or until its
    metrics were switched off. A shard that is behind is complete up to its newest landed event. If nothing
    has landed, nothing is known.
    """
    behind = {
        shard: min(landed[shard][0], now_ms) if shard in landed else 0
        for shard, tail in tails.items()
        if landed.get(shard, (-1, -1)) < tail
    }
    off = {switch.shard: switch.open_span for switch in switches if switch.open_span is not None}
    return Freshness(now_ms=now_ms, behind=behind, off=off)


class FreshnessReader:
    """Compares the landed positions with the ends of the streams; keeps each answer for `max_age_ms`."""

    def __init__(self, reader: Reader, tails: Tails, *, clock: Clock, max_age_ms: int = 500) -> None:
        self._reader = reader
        self._tails = tails
        self._clock = clock
        self._max_age_ms = max_age_ms
        self._known: dict[str, Freshness] = {}

    async def of(self, metric: str, *, anew: bool = False) -> Freshness:
        """How fresh a metric is; `anew` if an answer from before this call would be too old."""
        now_ms = self._clock.now_ms()
        known = None if anew else self._known.get(metric)
        if known is not None and 0 <= now_ms - known.now_ms < self._max_age_ms:
            return known
        # Read the tails before the landed positions. In the other order a shard that wrote in between would
        # look behind although everything up to `now_ms` has landed.
        switches = await self._tails.switches()
        tails = await self._tails.tails(metric)
        rows = await self._reader.ask(ask_operator("landed"))
        landed = {
            int(row["shard"]): (int(row["at_ms"]), int(row["sequence"]))
            for row in rows
            if row["metric"] == metric
        }
        self._known[metric] = freshness_of(now_ms=now_ms, landed=landed, tails=tails, switches=switches)
        return self._known[metric]


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedGap:
    """A span without events of one metric and shard."""

    metric: str
    shard: int
    span: TimeSpan
    kind: GapKind
    ended: bool = True

    @property
    def reason(self) -> str:
        """Why nothing is known of the span, for people."""
        start, end = moment(self.span.start_ms), moment(self.span.end_ms)
        if self.kind is GapKind.DROPPED:
            return f"events from {start} to {end} were dropped before they were read"
        if self.kind is GapKind.UNREADABLE:
            return f"events from {start} to {end} were rebuilt from an archive that lacks some of them"
        if self.ended:
            return f"metrics were switched off from {start} to {end}"
        return f"metrics are switched off since {start}"


class GapReader:
    """Reads the gaps of every metric. They are few, so all are read at once and kept for `max_age_ms`."""

    def __init__(self, reader: Reader, *, clock: Clock, max_age_ms: int = 1_000) -> None:
        self._reader = reader
        self._clock = clock
        self._max_age_ms = max_age_ms
        self._read_ms = -max_age_ms
        self._gaps: list[LandedGap] = []

    async def of(self, metric: str, shard: int) -> tuple[LandedGap, ...]:
        return tuple(gap for gap in await self.all_gaps() if gap.metric == metric and gap.shard == shard)

    async def all_gaps(self) -> list[LandedGap]:
        now_ms = self._clock.now_ms()
        if not 0 <= now_ms - self._read_ms < self._max_age_ms:
            rows = await self._reader.ask(ask_operator("gaps"))
            self._gaps = [
                LandedGap(
                    metric=row["metric"],
                    shard=int(row["shard"]),
                    span=TimeSpan(start_ms=row["start_ms"], end_ms=row["end_ms"]),
                    kind=GapKind(row["kind"]),
                )
                for row in rows
            ]
            self._read_ms = now_ms
        return self._gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Which parts of a series can be believed: its gaps, and until when it is complete."""

    gaps: tuple[LandedGap, ...]
    """Of all time. The last one may be open: then it ends when this was read."""
    complete_until_ms: int

    def within(self, *, start_ms: int, end_ms: int) -> list[LandedGap]:
        """The gaps that touch a span, in the order of their starts."""
        found = [gap for gap in self.gaps if gap.span.end_ms >= start_ms and gap.span.start_ms < end_ms]
        return sorted(found, key=lambda gap: gap.span.start_ms)

    def spans(self, *, switched_off: bool) -> list[TimeSpan]:
        """The spans in which metrics were off, or else those whose events are lost."""
        return [gap.span for gap in self.gaps if (gap.kind is GapKind.SWITCHED_OFF) is switched_off]


class TrustReader:
    """Reads gaps and freshness of one shard, both at the same time."""

    def __init__(self, freshness: FreshnessReader, gaps: GapReader) -> None:
        self._freshness = freshness
        self._gaps = gaps

    async def of(self, metric: str, shard: int) -> Trust:
        fresh, gaps = await asyncio.gather(self._freshness.of(metric), self._gaps.of(metric, shard))
        return Trust(
            gaps=(*gaps, *_open_gaps(fresh, metric, shard)), complete_until_ms=fresh.complete_until_ms(shard)
        )

    async def of_all(self, metric: str) -> Trust:
        """For figures that come from all shards."""
        fresh, gaps = await asyncio.gather(self._freshness.of(metric), self._gaps.all_gaps())
        mine = [gap for gap in gaps if gap.metric == metric]
        still = [gap for shard in fresh.off for gap in _open_gaps(fresh, metric, shard)]
        return Trust(gaps=(*mine, *still), complete_until_ms=fresh.all_complete_until_ms)


def _open_gaps(fresh: Freshness, metric: str, shard: int) -> list[LandedGap]:
    if shard not in fresh.off:
        return []
    from_ms = fresh.off[shard].from_ms
    span = TimeSpan(start_ms=from_ms, end_ms=max(fresh.now_ms, from_ms + 1))
    return [LandedGap(metric=metric, shard=shard, span=span, kind=GapKind.SWITCHED_OFF, ended=False)]
