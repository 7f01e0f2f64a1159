"""Reads the lives of messages that ended: by id, by key, or by queue and time."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from weir.errors import InvalidInput
from weir.model.ids import MessageId
from weir.model.limits import MAX_TIME_MS
from weir.model.lives import Life, LifeOutcome
from weir.model.message import check_message_id, check_number
from weir.model.names import EnvironmentRef, QueueRef, check_name
from weir.telemetry.life_reader import read_life
from weir.warehouse.reading.questions import ask_tenant
from weir.warehouse.reading.reader import Reader
from weir.warehouse.tables import LIVES

MAX_LIVES = 200
"""Lives in one page."""
_LATEST = (MAX_TIME_MS, UUID(int=(1 << 128) - 1))
_EVER_S = (0, (1 << 32) - 1)
# Most messages end within a day after their id was made, and two days of the table are read faster than 30.
_BEFORE_S, _AFTER_S = 3_600, 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class LifePage:
    """Lives of a queue or a key, newest end first."""

    lives: tuple[Life, ...]
    cursor: str | None
    """Where the next page goes on; None at the end."""


class LifeReader:
    """Reads lives, each within its own tenant."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def find(self, environment: EnvironmentRef, message_id: MessageId) -> Life | None:
        """The life of a message; None if it has none, has not ended, or has not landed yet.

        An id that was used again after its message ended has several lives. This returns the newest life that
        ended within a day after the id was made, or else the newest of all.
        """
        check_message_id(message_id)
        for from_s, to_s in _likely_spans(message_id):
            rows = await self._ask("life_by_id", environment, message_id=message_id, from_s=from_s, to_s=to_s)
            if rows:
                return _life(environment, rows[0])
        return None

    async def of_key(
        self,
        environment: EnvironmentRef,
        key: str,
        *,
        queue: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> LifePage:
        """The lives of the messages with a key, in one queue or in all, newest first."""
        check_name(key, what="message key")
        return await self._page("lives_of_key", environment, cursor, limit, key=key, queue=queue or "")

    async def of_queue(
        self,
        queue: QueueRef,
        *,
        from_ms: int,
        to_ms: int,
        outcomes: Sequence[LifeOutcome] = (),
        cursor: str | None = None,
        limit: int = 50,
    ) -> LifePage:
        """The lives of a queue's messages that ended from `from_ms` until before `to_ms`, newest first."""
        span = {"from_ms": from_ms, "to_ms": to_ms}
        for name, at_ms in span.items():
            check_number(at_ms, what=name, least=0, most=MAX_TIME_MS)
        words = [outcome.value for outcome in outcomes]
        return await self._page(
            "lives_of_queue", queue.scope, cursor, limit, queue=queue.queue, outcomes=words, **span
        )

    async def _page(
        self, name: str, environment: EnvironmentRef, cursor: str | None, limit: int, **asked: Any
    ) -> LifePage:
        check_number(limit, what="limit", least=1, most=MAX_LIVES)
        before_ms, before_id = _LATEST if cursor is None else _place_of(cursor)
        # One more than asked for tells whether there is a next page.
        rows = await self._ask(
            name, environment, before_ms=before_ms, before_id=str(before_id), limit=limit + 1, **asked
        )
        lives = tuple(_life(environment, row) for row in rows[:limit])
        return LifePage(lives=lives, cursor=_cursor(lives[-1]) if len(rows) > limit else None)

    async def _ask(self, name: str, environment: EnvironmentRef, **asked: Any) -> list[dict[str, Any]]:
        return await self._reader.ask(ask_tenant(name, environment, table=LIVES, **asked))


def _likely_spans(message_id: MessageId) -> list[tuple[int, int]]:
    """The spans of seconds in which to look for the end of a message, in order; the last is all time."""
    if message_id[14] != "7":
        return [_EVER_S]
    # An id of version 7 begins with the milliseconds of when it was made.
    made_s = int(message_id[:8] + message_id[9:13], 16) // 1_000
    likely = max(made_s - _BEFORE_S, 0), min(made_s + _AFTER_S, _EVER_S[1])
    return [likely, _EVER_S] if likely[0] < likely[1] else [_EVER_S]


def _life(environment: EnvironmentRef, row: Mapping[str, Any]) -> Life:
    return read_life(environment.queue(row["queue"]), row)


def _cursor(life: Life) -> str:
    return urlsafe_b64encode(f"{life.ended_at_ms} {life.message_id}".encode()).decode()


def _place_of(cursor: str) -> tuple[int, UUID]:
    try:
        at_ms, message_id = urlsafe_b64decode(cursor.encode("ascii")).decode("ascii").split(" ")
        place = min(int(at_ms), MAX_TIME_MS), UUID(message_id)
    except (binascii.Error, ValueError):
        raise InvalidInput(f"`{cursor:.40}` is not a cursor of lives; begin without one") from None
    return place
