"""Where a message comes from: the id of a replay follows from the dead letter's, and it says whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from weir.deadletters.dead_letter import DeadLetter, Position
from weir.model.ids import derived_id

REPLAY_OF = "weir-replay-of"
REPLAY_ORIGIN = "weir-replay-origin"
REPLAY_TASK = "weir-replay-task"
MAX_TIME_DIGITS = 13
LINEAGE = frozenset((REPLAY_OF, REPLAY_ORIGIN, REPLAY_TASK))


def replay_id_of(letter_id: str, *, died_at_ms: int) -> str:
    """The one id that the replay of a dead letter has, whoever replays it and however often it is tried.

    A UUIDv7 of the time of death, so that it sorts among its contemporaries.
    """
    return derived_id(letter_id, time_ms=died_at_ms, purpose=b"weir.replay")


def replay_key_of(letter_id: str) -> str:
    """The idempotency key of that replay: a second try within the queue's window is a duplicate."""
    return f"weir-replay/{letter_id}"


def replay_headers(dead_letter: DeadLetter, task_id: str | None) -> dict[str, str]:
    """The headers of a replay: the letter's own, and what the mover asks for if it dies again.

    The lineage of an earlier replay goes, or a death would still count for the redrive of that time.
    """
    origin = dead_letter.position
    headers = {name: value for name, value in dead_letter.headers.items() if name not in LINEAGE}
    headers |= {REPLAY_OF: dead_letter.id, REPLAY_ORIGIN: f"{origin.enqueued_at_ms} {origin.id}"}
    return headers if task_id is None else {**headers, REPLAY_TASK: task_id}


def parent_of(message_id: str, headers: Mapping[str, str]) -> str | None:
    """The dead letter that a message claims to replay, if that holds: producers can write headers too."""
    claimed = _uuid(headers.get(REPLAY_OF, ""))
    if claimed is None:
        return None
    died_at_ms = UUID(message_id).int >> 80
    return claimed if replay_id_of(claimed, died_at_ms=died_at_ms) == message_id else None


def origin_of(headers: Mapping[str, str]) -> Position | None:
    """Where a replay says that it comes from."""
    time_ms, _, first = headers.get(REPLAY_ORIGIN, "").partition(" ")
    first_id = _uuid(first)
    known = time_ms.isascii() and time_ms.isdigit() and len(time_ms) <= MAX_TIME_DIGITS
    return Position(enqueued_at_ms=int(time_ms), id=first_id) if known and first_id else None


def task_of(headers: Mapping[str, str]) -> str | None:
    """The redrive that a message says it belongs to."""
    return _uuid(headers.get(REPLAY_TASK, ""))


def _uuid(text: str) -> str | None:
    try:
        return str(UUID(text))
    except ValueError:
        return None
