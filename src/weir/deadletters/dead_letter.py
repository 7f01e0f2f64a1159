"""A dead letter as a value, and the rows that it is read from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import accumulate

from weir.control.database import Database, Row
from weir.deadletters.queries import DEAD_LETTERS
from weir.model.item_loops import storable_text
from weir.model.message import DeadMessage, DeathReason
from weir.model.names import QueueRef

MAX_ERROR = 65_536
"""Characters of an error that are stored."""
LAST_MS = 2**62
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"

_UNTOLD = {
    (True, False): "expired before its first attempt",
    (True, True): "expired while it waited for another attempt",
    (False, True): "failed without an error text",
    (False, False): "failed without an error text",
}
"""Texts for letters without an error, by whether the message expired and whether it was ever attempted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in the original order: when the first message of a line of replays was enqueued, and its id.

    Replays share the millisecond in which they are enqueued, and their ids are hashes. So their own time and
    id do not tell the order of a key; the time and id of the first message do.
    """

    enqueued_at_ms: int = LAST_MS
    id: str = LAST_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that died, why, and what was done about it since."""

    id: str
    seq: int
    consumer_key: int
    group_key: int
    queue: QueueRef
    channel_id: str
    consumer_id: str
    payload: bytes
    headers: Mapping[str, str]
    key: str | None
    priority: int
    idempotency_key: str | None
    attempts: int
    max_attempts: int
    reason: str
    error: str
    fingerprint: str
    enqueued_at_ms: int
    died_at_ms: int
    position: Position
    replay_of: str | None
    replay_id: str | None
    replayed_at_ms: int | None
    replay_task: str | None
    replay_result: str | None

    @property
    def dead(self) -> bool:
        """Whether it was not replayed yet, and so counts as dead."""
        return self.replayed_at_ms is None

    @property
    def error_text(self) -> str:
        """The error; if the handler gave none, a text that says what is known."""
        return self.error or _UNTOLD[self.reason == DeathReason.EXPIRED, self.attempts > 0]

    @property
    def exhausted(self) -> bool:
        """Whether it used up its attempts."""
        return self.attempts >= self.max_attempts


_ENVELOPE = ("headers", "key", "priority", "idempotency_key")
_IDS = ("id", "replay_of", "replay_id", "replay_task")
_COLUMNS = tuple(
    {one.name for one in fields(DeadLetter)} - {*_ENVELOPE, *_IDS, "queue", "payload", "position"}
)


def envelope_of(message: DeadMessage) -> str:
    """The headers, key, priority and idempotency key as ASCII JSON, which is exact for any text, also NUL."""
    members = {name: getattr(message, name) for name in _ENVELOPE}
    return json.dumps(members | {"headers": dict(message.headers)})


def storable(error: str) -> str:
    """An error as PostgreSQL can store it: bounded, without NUL and lone surrogates."""
    return storable_text(error[:MAX_ERROR])


def letter_of(row: Row) -> DeadLetter:
    """The dead letter that a row of `select_letters` describes."""
    values = {name: row[name] for name in _COLUMNS}
    values |= {name: row["envelope"][name] for name in _ENVELOPE}
    values |= {name: None if row[name] is None else str(row[name]) for name in _IDS}
    return DeadLetter(
        **values,
        queue=_queue(row["organization"], row["project"], row["environment"], row["queue"]),
        payload=bytes(row["payload"]),
        position=Position(enqueued_at_ms=row["position_ms"], id=str(row["position_id"])),
    )


def within_bytes(rows: Sequence[Row], most: int) -> list[str]:
    """The ids of the first rows until their bytes are enough; always the first one."""
    before = accumulate((row["bytes"] for row in rows), initial=0)
    return [str(row["id"]) for row, total in zip(rows, before, strict=False) if total < most]


async def read_letters(database: Database, ids: Iterable[str]) -> list[DeadLetter]:
    """The letters with these ids in their original order, dead or replayed."""
    rows = await database.fetch(DEAD_LETTERS["select_letters"], ids=list(ids))
    return [letter_of(row) for row in rows]


@lru_cache(maxsize=4_096)
def _queue(organization: str, project: str, environment: str, queue: str) -> QueueRef:
    """Cached, because checking four names for each of a thousand letters takes time."""
    return QueueRef(organization=organization, project=project, environment=environment, queue=queue)
