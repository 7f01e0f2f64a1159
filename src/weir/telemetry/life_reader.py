"""Reads lives from rows, which come from `life_columns` or from the warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any
from uuid import UUID

from weir.model.ids import MessageId
from weir.model.inspection import WaitParts
from weir.model.lives import Life, LifeAttempt
from weir.model.names import QueueRef
from weir.telemetry.life_columns import ATTEMPT_COLUMNS
from weir.telemetry.lives import ATTEMPT_ENDS, DEATH_REASONS, OUTCOMES

_NOBODY = UUID(int=0)


def read_life(queue: QueueRef, row: Mapping[str, Any]) -> Life:
    """One life from a row with the columns of `life_columns`."""
    attempts = zip(*(row[name] for name in ATTEMPT_COLUMNS), strict=True)
    return Life(
        queue=queue,
        message_id=MessageId(str(_uuid(row["message_id"]))),
        key=row["key"] or None,
        outcome=OUTCOMES[row["outcome"]],
        reason=DEATH_REASONS[row["reason"]],
        enqueued_at_ms=row["enqueued_ms"],
        available_at_ms=row["available_ms"],
        handed_out_at_ms=row["handed_out_ms"] or None,
        ended_at_ms=row["ended_ms"],
        priority=row["priority"],
        attempts=row["attempts"],
        last_attempts=tuple(
            LifeAttempt(started_at_ms=began, ended_at_ms=ended, end=ATTEMPT_ENDS[end], consumer=consumer)
            for began, ended, end, consumer in attempts
        ),
        handler_ms=row["handler_ms"],
        leased_ms=row["leased_ms"],
        parts=WaitParts(**{part.name: row[part.name] for part in fields(WaitParts)}),
        blocked_by_id=_message_id(_uuid(row["blocked_by_id"])),
        payload_bytes=row["payload_bytes"],
    )


def _uuid(value: bytes | UUID) -> UUID:
    return value if isinstance(value, UUID) else UUID(bytes=value)


def _message_id(value: UUID) -> MessageId | None:
    return None if value == _NOBODY else MessageId(str(value))
