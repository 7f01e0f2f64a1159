"""The calendar of the incidents before the demo started: a few incidents of different kinds per week.

It depends only on the time of the demo's first incident, so the processes that write events, alerts and
annotations agree on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from weir.model.durations import DAY_MS, MINUTE_MS


class IncidentKind(StrEnum):
    BANK_SLOW = "the bank is slow"
    BAD_DEPLOY = "a deploy made the orders slow"
    POISONED_IMPORT = "a poisoned file is imported"
    PHOTO_CAMPAIGN = "a campaign brings many photos"
    MAIL_WORKERS_DOWN = "the workers of the mails are down"


QUEUES = {
    IncidentKind.BANK_SLOW: "payments",
    IncidentKind.BAD_DEPLOY: "orders",
    IncidentKind.POISONED_IMPORT: "imports",
    IncidentKind.PHOTO_CAMPAIGN: "thumbnails",
    IncidentKind.MAIL_WORKERS_DOWN: "emails",
}
"""The queue of the shop that each kind hits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastIncident:
    kind: IncidentKind
    start_ms: int
    lasts_ms: int

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.lasts_ms

    def hits(self, queue: str, at_ms: int) -> bool:
        return QUEUES[self.kind] == queue and self.start_ms <= at_ms < self.end_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy:
    """The deploy of a version, or its roll-back."""

    at_ms: int
    text: str


_CALENDAR = (
    (0.16, IncidentKind.PHOTO_CAMPAIGN, 25),
    (1.3, IncidentKind.BANK_SLOW, 18),
    (3.1, IncidentKind.BAD_DEPLOY, 70),
    (5.6, IncidentKind.POISONED_IMPORT, 25),
    (8.4, IncidentKind.MAIL_WORKERS_DOWN, 20),
    (10.2, IncidentKind.PHOTO_CAMPAIGN, 30),
    (12.7, IncidentKind.BANK_SLOW, 35),
    (15.1, IncidentKind.POISONED_IMPORT, 40),
    (17.2, IncidentKind.BAD_DEPLOY, 45),
    (19.8, IncidentKind.BANK_SLOW, 22),
    (22.3, IncidentKind.PHOTO_CAMPAIGN, 30),
    (24.6, IncidentKind.MAIL_WORKERS_DOWN, 30),
    (27.1, IncidentKind.BANK_SLOW, 40),
)
"""Days before the first incident, kind, and length in minutes; fewer than four in any week."""
_DEPLOY_EVERY_MS = 3 * DAY_MS
_FIRST_VERSION = 31


def past_incidents(first_ms: int) -> tuple[PastIncident, ...]:
    """The incidents of the thirty days before the demo's own first incident, oldest first."""
    found = [
        PastIncident(
            kind=kind, start_ms=_placed(kind, first_ms - round(days * DAY_MS)), lasts_ms=minutes * MINUTE_MS
        )
        for days, kind, minutes in _CALENDAR
    ]
    return tuple(sorted(found, key=lambda one: one.start_ms))


def _placed(kind: IncidentKind, at_ms: int) -> int:
    """The start of an incident. A bad deploy at a weekend is moved to the Friday before."""
    at_ms -= at_ms % MINUTE_MS
    if kind is IncidentKind.BAD_DEPLOY:
        # The first day of Unix time was a Thursday, the fourth day of its week.
        at_ms -= max((at_ms // DAY_MS + 3) % 7 - 4, 0) * DAY_MS
    return at_ms


def past_deploys(first_ms: int) -> list[Deploy]:
    """Every deploy and every roll-back, oldest first."""
    return [
        Deploy(at_ms=at_ms, text=f"v{number} out" if back is None else f"v{number} taken back: {back}")
        for number, at_ms, back in sorted(_versions(first_ms), key=lambda one: one[1])
    ]


def _versions(first_ms: int) -> Iterator[tuple[int, int, str | None]]:
    """The number of a version, the time of its deploy or roll-back, and the reason of a roll-back."""
    bad = [one for one in past_incidents(first_ms) if one.kind is IncidentKind.BAD_DEPLOY]
    quiet = [first_ms - age for age in range(_DEPLOY_EVERY_MS // 2, 30 * DAY_MS, _DEPLOY_EVERY_MS)]
    going_out = sorted([*quiet, *(one.start_ms for one in bad)])
    numbers = {at_ms: _FIRST_VERSION + index for index, at_ms in enumerate(going_out)}
    for at_ms, number in numbers.items():
        yield number, at_ms, None
    for one in bad:
        yield numbers[one.start_ms], one.end_ms, "orders take 3 s"


# How each kind changes the queue that it hits.
_SLOWER = {IncidentKind.BANK_SLOW: 25.0, IncidentKind.BAD_DEPLOY: 80.0}
_MORE = {IncidentKind.POISONED_IMPORT: 10.0}
# Two workers do 5.7 photos per second, and up to 4 arrive by themselves.
_BESIDES_PER_S = {IncidentKind.PHOTO_CAMPAIGN: 5.0}
_FAILURES = {IncidentKind.BANK_SLOW: 0.02, IncidentKind.BAD_DEPLOY: 0.12}
_POISON = {IncidentKind.POISONED_IMPORT: 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentEffect:
    """What an incident does to a queue while it lasts."""

    slower: float = 1.0
    more: float = 1.0
    besides_per_s: float = 0.0
    failures: float = 0.0
    poison: float = 0.0
    stopped: bool = False


NO_EFFECT = IncidentEffect()


def effect_of(kind: IncidentKind) -> IncidentEffect:
    return IncidentEffect(
        slower=_SLOWER.get(kind, 1.0),
        more=_MORE.get(kind, 1.0),
        besides_per_s=_BESIDES_PER_S.get(kind, 0.0),
        failures=_FAILURES.get(kind, 0.0),
        poison=_POISON.get(kind, 0.0),
        stopped=kind is IncidentKind.MAIL_WORKERS_DOWN,
    )


# An alert fires when its window is full, and resolves a window after its queue is empty.
FIRES_AFTER_MS = 2 * MINUTE_MS
RESOLVES_AFTER_MS = 6 * MINUTE_MS
