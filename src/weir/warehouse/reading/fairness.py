"""Reads from lives how fairly a queue served its keys: which waited, which were leased, how alike waits were.

Waiting for a scheduled time or for a back-off is left out, because no other key caused it. The index is over
mean waits and not over leased time, because a key with few messages is leased little.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from weir.errors import InvalidInput
from weir.model.durations import DAY_MS
from weir.model.names import QueueRef
from weir.model.wording import duration
from weir.warehouse.reading.questions import ask_tenant
from weir.warehouse.reading.reader import Reader
from weir.warehouse.tables import LIVES

FAIRNESS_SLOTS = 60
"""How many points the index over time has."""
MAX_KEYS = 100
LONGEST_PERIOD_MS = 7 * DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUse:
    """How long the messages of one key waited and were leased."""

    key: str
    messages: int
    mean_wait_ms: float
    leased_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FairnessPoint:
    """How alike the keys of a slot waited: 1 if all alike, 1 / keys if one key had all the waiting."""

    at_ms: int
    keys: int
    fairness: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFairness:
    """How a queue served its keys over a span."""

    from_ms: int
    to_ms: int
    step_ms: int
    keys: int
    leased_ms: int
    """Of all keys."""
    waited_most: tuple[KeyUse, ...]
    took_most: tuple[KeyUse, ...]
    points: tuple[FairnessPoint, ...]
    """Slots in which no message with a key ended are left out."""


class FairnessReader:
    """Reads the fairness of queues, each within its own tenant."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def of_queue(self, queue: QueueRef, *, from_ms: int, to_ms: int, limit: int = 10) -> KeyFairness:
        """How the keys of a queue were served, by the messages that ended from `from_ms` until `to_ms`."""
        if not 1 <= limit <= MAX_KEYS:
            raise InvalidInput(f"`{limit}` keys cannot be listed; ask for 1 to {MAX_KEYS}")
        if not 0 < to_ms - from_ms <= LONGEST_PERIOD_MS:
            raise InvalidInput(
                f"fairness is told for up to {duration(LONGEST_PERIOD_MS)}; ask for a shorter period"
            )
        step_ms = -(-(to_ms - from_ms) // FAIRNESS_SLOTS)
        asked: dict[str, Any] = {
            "table": LIVES,
            "queue": queue.queue,
            "from_ms": from_ms,
            "to_ms": to_ms,
            "step_ms": step_ms,
        }
        used, slots = await asyncio.gather(
            self._reader.ask(ask_tenant("keys_by_use", queue.scope, limit=limit, **asked)),
            self._reader.ask(ask_tenant("fairness_of_keys", queue.scope, **asked)),
        )
        waited = sorted((row for row in used if row["is_waiting"]), key=lambda row: -row["mean_wait_ms"])
        took = sorted((row for row in used if row["is_taking"]), key=lambda row: -row["leased_ms"])
        return KeyFairness(
            from_ms=from_ms,
            to_ms=to_ms,
            step_ms=step_ms,
            keys=used[0]["keys"] if used else 0,
            leased_ms=used[0]["leased_of_all_ms"] if used else 0,
            waited_most=tuple(map(_use, waited)),
            took_most=tuple(map(_use, took)),
            points=tuple(_point(row, from_ms=from_ms, step_ms=step_ms) for row in slots),
        )


def _use(row: dict[str, Any]) -> KeyUse:
    return KeyUse(
        key=row["key"],
        messages=row["messages"],
        mean_wait_ms=row["mean_wait_ms"],
        leased_ms=row["leased_ms"],
    )


def _point(row: dict[str, Any], *, from_ms: int, step_ms: int) -> FairnessPoint:
    at_ms = from_ms + row["slot"] * step_ms
    return FairnessPoint(at_ms=at_ms, keys=row["keys"], fairness=row["fairness"])
