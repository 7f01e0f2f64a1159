"""Ids: UUIDv7, monotonic within one process, so that sorting by id is sorting by time."""

from __future__ import annotations

from typing import NewType
from uuid import UUID

import uuid_utils

from weir.errors import InvalidInput

MessageId = NewType("MessageId", str)
OperationId = NewType("OperationId", str)


def new_id() -> str:
    """A fresh UUIDv7 in its canonical text form."""
    return str(uuid_utils.uuid7())


def new_message_id() -> MessageId:
    return MessageId(new_id())


def new_operation_id() -> OperationId:
    return OperationId(new_id())


def check_id(text: str, *, what: str) -> str:
    """Return `text` in canonical form if it is a UUID."""
    try:
        return str(UUID(text))
    except (ValueError, AttributeError, TypeError):
        article = "an" if what[0] in "aeiou" else "a"
        raise InvalidInput(f"`{text!s:.64}` is not {article} {what} id; expected a UUID") from None


def id_time_ms(text: str) -> int:
    """The creation time that a UUIDv7 carries."""
    return int(text.replace("-", "")[:12], 16)
