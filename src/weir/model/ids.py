"""Makes and checks ids: UUIDv7, which grow within a process, so that sorting by id is sorting by time."""

from __future__ import annotations

import hashlib
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


def derived_id(source: str, *, time_ms: int, purpose: bytes) -> str:
    """The same UUIDv7 every time: of `time_ms`, and for the rest a hash of another id and a purpose."""
    digest = hashlib.blake2b(UUID(source).bytes, digest_size=16, person=purpose).digest()
    bits = int.from_bytes(digest) & ((1 << 80) - 1)
    bits = (time_ms & ((1 << 48) - 1)) << 80 | bits
    # Version 7 and the variant of RFC 9562.
    bits = bits & ~(0xF << 76) | 0x7 << 76
    bits = bits & ~(0x3 << 62) | 0x2 << 62
    return str(UUID(int=bits))


def check_id(text: str, *, what: str) -> str:
    """Return `text` in canonical form if it is a UUID."""
    try:
        return str(UUID(text))
    except (ValueError, AttributeError, TypeError):
        article = "an" if what[0] in "aeiou" else "a"
        raise InvalidInput(f"`{text!s:.64}` is not {article} {what} id; expected a UUID") from None


def is_canonical_id(text: str) -> bool:
    """Whether `text` is a UUID as `new_id` spells it."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def id_time_ms(text: str) -> int:
    """The creation time that a UUIDv7 carries."""
    return int(text.replace("-", "")[:12], 16)
