"""Reads the lives of messages that ended: one by its id, those of a key, those of a queue by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weir.model.ids import MessageId
from weir.model.lives import Life, LifeOutcome
from weir.model.names import EnvironmentRef, QueueRef
from weir.warehouse.reading.reader import Reader

MAX_LIVES = 200
"""Lives in one page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifePage:
    """Lives of a queue or a key, those that ended last first."""

    lives: tuple[Life, ...]
    cursor: str | None
    """Where the next page goes on; None at the end."""


class LifeReader:
    """Reads lives, each within its own tenant."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def find(self, environment: EnvironmentRef, message_id: MessageId) -> Life | None:
        """The life of a message; None if it has none, has not ended, or has not landed yet.

        An id that was used again after its message ended has several lives; this is the newest.
        """
        raise NotImplementedError

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
        raise NotImplementedError

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
        raise NotImplementedError
