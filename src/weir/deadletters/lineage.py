"""The lineage of replays: a replay's id follows from its letter's id, and its headers name the letter."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from weir.deadletters.dead_letter import DeadLetter, Position
from weir.model.ids import derived_id
from weir.model.message_headers import CHAINED_FROM

REPLAY_OF = "weir-replay-of"
REPLAY_ORIGIN = "weir-replay-origin"
REPLAY_ACTION = "weir-replay-task"
REPLAYED_FROM = "weir-replayed-from"
"""The message in a log that a message was replayed from."""
MAX_TIME_DIGITS = 13
"""Milliseconds since the epoch have 13 digits until the year 2286; a longer number is not a time."""
LINEAGE = frozenset((REPLAY_OF, REPLAY_ORIGIN, REPLAY_ACTION, REPLAYED_FROM))


def replay_id_of(letter_id: str, *, died_at_ms: int) -> str:
    """The one id that the replay of a dead letter has, whoever replays it and however often it is tried.

    It is a UUIDv7 of the time of death, so that it sorts by time like every other id.
    """
    return derived_id(letter_id, time_ms=died_at_ms, purpose=b"weir.replay")


def replay_key_of(letter_id: str) -> str:
    """The idempotency key of that replay: a second try within the queue's window is a duplicate."""
    return f"weir-replay/{letter_id}"


def replay_headers(dead_letter: DeadLetter, action_id: str | None) -> dict[str, str]:
    """The headers of a replay: the letter's own, and headers that the mover reads if the replay dies too.

    The lineage of an earlier replay is removed, or a death would still count for that earlier redrive.
    """
    origin = dead_letter.position
    headers = {name: value for name, value in dead_letter.headers.items() if name not in LINEAGE}
    headers |= {REPLAY_OF: dead_letter.id, REPLAY_ORIGIN: f"{origin.enqueued_at_ms} {origin.id}"}
    return headers if action_id is None else {**headers, REPLAY_ACTION: action_id}


def parent_of(message_id: str, headers: Mapping[str, str]) -> str | None:
    """The dead letter that a message replays. Producers can write headers too, so the id must agree."""
    claimed = _uuid(headers.get(REPLAY_OF, ""))
    if claimed is None:
        return None
    died_at_ms = UUID(message_id).int >> 80
    return claimed if replay_id_of(claimed, died_at_ms=died_at_ms) == message_id else None


def log_replay_id_of(message_id: str, action_id: str, *, ended_at_ms: int) -> str:
    """The one id that a bulk action gives to the replay of a message in a log, however often it is tried."""
    both = UUID(int=UUID(message_id).int ^ UUID(action_id).int)
    return derived_id(str(both), time_ms=ended_at_ms, purpose=b"weir.log-replay")


def log_replay_key_of(message_id: str, action_id: str) -> str:
    """The idempotency key of that replay."""
    return f"weir-log-replay/{action_id}/{message_id}"


def log_replay_headers(headers: Mapping[str, str], message_id: str, action_id: str) -> dict[str, str]:
    """The headers of such a replay: those of the message, with the message as its only parent."""
    own = {name: value for name, value in headers.items() if name not in {*LINEAGE, CHAINED_FROM}}
    return {**own, REPLAYED_FROM: message_id, REPLAY_ACTION: action_id}


def replayed_from(message_id: str, headers: Mapping[str, str]) -> str | None:
    """The message in a log that a message was replayed from. Its id must agree, as for `parent_of`."""
    claimed, action_id = _uuid(headers.get(REPLAYED_FROM, "")), redrive_of(headers)
    if claimed is None or action_id is None:
        return None
    ended_at_ms = UUID(message_id).int >> 80
    return claimed if log_replay_id_of(claimed, action_id, ended_at_ms=ended_at_ms) == message_id else None


def origin_of(headers: Mapping[str, str]) -> Position | None:
    """The first message of a replay's line, as its headers say."""
    time_ms, _, first = headers.get(REPLAY_ORIGIN, "").partition(" ")
    first_id = _uuid(first)
    known = time_ms.isascii() and time_ms.isdigit() and len(time_ms) <= MAX_TIME_DIGITS
    return Position(enqueued_at_ms=int(time_ms), id=first_id) if known and first_id else None


def redrive_of(headers: Mapping[str, str]) -> str | None:
    """The bulk action that sent a replay, as its headers say."""
    return _uuid(headers.get(REPLAY_ACTION, ""))


def _uuid(text: str) -> str | None:
    try:
        return str(UUID(text))
    except ValueError:
        return None
