"""Why messages of the memory broker waited: full logs of every reason, cut into spans and added up.

The Redis broker keeps running clocks instead; its answers are compared with these.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from weir.broker.layout import ASK_MS
from weir.model.inspection import WaitParts


class MessagePhase(StrEnum):
    """A phase of a message: it waits for its time, a retry or its key, may be handed out, or is leased."""

    SCHEDULED = "scheduled_ms"
    BACKOFF = "backoff_ms"
    BLOCKED = "blocked_ms"
    FREE = "free"
    LEASED = "leased"


@dataclass(slots=True)
class FlagLog:
    """Since when a flag was up or down."""

    times: list[int] = field(default_factory=list)
    values: list[bool] = field(default_factory=list)

    def note(self, now: int, value: bool) -> None:
        if value is not (self.values[-1] if self.values else False):
            self.times.append(now)
            self.values.append(value)

    def at(self, time: int) -> bool:
        place = bisect_right(self.times, time)
        return self.values[place - 1] if place else False


@dataclass(slots=True)
class AskLog:
    """When somebody asked for messages: spans that each begin with an ask and end a second after the last."""

    spans: list[tuple[int, int]] = field(default_factory=list)

    def note(self, now: int) -> None:
        start, end = self.spans.pop() if self.spans and self.spans[-1][1] >= now else (now, now)
        self.spans.append((start, max(end, now + ASK_MS)))

    def at(self, time: int) -> bool:
        place = bisect_right(self.spans, time, key=lambda span: span[0])
        return place > 0 and self.spans[place - 1][1] > time

    @property
    def times(self) -> list[int]:
        return [time for span in self.spans for time in span]


@dataclass(slots=True)
class QueueLogs:
    """All that can keep a queue from being served."""

    paused: FlagLog = field(default_factory=FlagLog)
    limited: FlagLog = field(default_factory=FlagLog)
    asked: AskLog = field(default_factory=AskLog)


@dataclass(slots=True)
class EnvironmentLogs:
    limited: FlagLog = field(default_factory=FlagLog)
    asked: AskLog = field(default_factory=AskLog)


@dataclass(slots=True, kw_only=True)
class WaitLogs:
    """The logs of a queue and of its environment together."""

    queue: QueueLogs
    environment: EnvironmentLogs

    def parts(self, phases: Sequence[tuple[int, MessagePhase]], until: int) -> tuple[WaitParts, int]:
        """What a message waited for until a time, and for how long it was leased."""
        spent = dict.fromkeys((*WaitParts.__slots__, MessagePhase.LEASED.value), 0)
        for (start, phase), (stop, _) in pairwise([*phases, (until, MessagePhase.FREE)]):
            for reason, ms in self._split(phase, start, min(stop, until)):
                spent[reason] += ms
        leased = spent.pop(MessagePhase.LEASED.value)
        return WaitParts(**spent), leased

    def _split(self, phase: MessagePhase, start: int, stop: int) -> Iterator[tuple[str, int]]:
        if phase is not MessagePhase.FREE:
            yield phase.value, max(0, stop - start)
            return
        queue, environment = self.queue, self.environment
        logs = (queue.paused, queue.limited, queue.asked, environment.limited, environment.asked)
        cuts = {time for log in logs for time in log.times if start < time < stop}
        for left, right in pairwise(sorted({start, stop, *cuts})):
            yield self._reason(left), right - left

    def _reason(self, time: int) -> str:
        """Why a message that could be handed out waited at this time."""
        if self.queue.paused.at(time):
            return "paused_ms"
        if self.queue.limited.at(time):
            return "queue_limit_ms"
        if self.environment.limited.at(time):
            return "environment_limit_ms"
        asked = self.queue.asked.at(time) or self.environment.asked.at(time)
        return "turn_ms" if asked else "unasked_ms"
