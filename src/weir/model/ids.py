"""Makes and checks ids, and names calls.

Ids are UUIDv7, which grow within a process, so that sorting by id is sorting by time.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from dataclasses import dataclass, replace
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
    """The same UUIDv7 for the same arguments: `time_ms`, then a hash of another id and a purpose."""
    digest = hashlib.blake2b(UUID(source).bytes, digest_size=16, person=purpose).digest()
    bits = int.from_bytes(digest) & ((1 << 80) - 1)
    bits = (time_ms & ((1 << 48) - 1)) << 80 | bits
    # Version 7 and the variant of RFC 9562.
    bits = bits & ~(0xF << 76) | 0x7 << 76
    bits = bits & ~(0x3 << 62) | 0x2 << 62
    return str(UUID(int=bits))


_CANONICAL = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check_id(text: str, *, what: str) -> str:
    """Return `text` in canonical form if it is a UUID."""
    try:
        # Nearly every id is canonical. Making a UUID of it takes 1.7 us, a tenth of what an ack takes.
        return text if is_canonical_id(text) else str(UUID(text))
    except (ValueError, AttributeError, TypeError):
        article = "an" if what[0] in "aeiou" else "a"
        raise InvalidInput(f"`{text!s:.64}` is not {article} {what} id; expected a UUID") from None


def is_canonical_id(text: str) -> bool:
    """Whether `text` is a UUID as `new_id` spells it."""
    return _CANONICAL.fullmatch(text) is not None


def id_time_ms(text: str) -> int:
    """The creation time that a UUIDv7 carries."""
    return int(text.replace("-", "")[:12], 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCall:
    """A producer's direct enqueue call. Its name lets it take effect at most once, however late it arrives.

    The call obeys gates. It is also GATED once the allowance of its shard lapsed (see `allow_direct`).

    A caller uses a slot for one call at a time and takes a fresh one after a call of unknown outcome; so one
    remembered call per slot (a field of one hash per shard) is enough, for any length of outage. A slot is
    forgotten once nobody can ask about its call any more (see `idle_calls`).

    If the slot remembers this very id, the call changes nothing and gets the same answer as the first time.
    A call that `settle_call` made void is GATED. The calls of a slot are numbered, so a call that arrives
    behind its successor is known to be late, and changes nothing: CallStale. (Ids that older programs stored
    are not numbers.)

    A name stands for its messages: KeyReused if the slot remembers this id with another `digest`, where both
    are told, or with another number of messages.
    """

    slot: str
    id: str
    digest: bytes = b""
    """16 bytes that stand for the messages; empty if the caller never uses a name again."""


def owned_slot(owner: str, slot: str) -> str:
    """The slot as Redis knows it. Owners, which are tokens, have slots of their own, whatever their names."""
    return f"{owner}/{slot}"


class CallSlots:
    """Names the enqueue calls of one process: calls of direct pushes, and lists of a client over HTTP.

    Each slot carries one call at a time, so the broker needs to remember only the last call of a slot.

    The calls of a slot are numbered, because the bytes of a call may be sent twice and arrive behind a later
    call. A slot whose call had an unknown outcome is never given back: the call may still take effect.

    Threads may share it. A process that was forked names its calls anew, because its parent goes on. With an
    `owner`, the slots are the owner's, as the API has them.
    """

    def __init__(self, process: str | None = None, *, owner: str | None = None) -> None:
        self._process = process or new_id()
        self._owner = owner
        self._pid = os.getpid()
        # Threads take and give back by `pop`, `append` and `next` alone, which are atomic.
        self._free: list[NamedCall] = []
        """The last call of each slot that is free."""
        self._numbers = itertools.count(1)

    def take(self) -> NamedCall:
        """Name a call, in a slot that no other call uses until it is given back."""
        if self._pid != os.getpid():
            self._pid, self._process, self._free = os.getpid(), new_id(), []
        try:
            last = self._free.pop()
        except IndexError:
            slot = f"{self._process}/{next(self._numbers)}"
            return NamedCall(slot=slot if self._owner is None else owned_slot(self._owner, slot), id="1")
        return NamedCall(slot=last.slot, id=str(int(last.id) + 1))

    def within_owner(self, call: NamedCall) -> NamedCall:
        """The call as the owner names it."""
        prefix = "" if self._owner is None else owned_slot(self._owner, "")
        return replace(call, slot=call.slot.removeprefix(prefix))

    def give_back(self, call: NamedCall) -> None:
        """Free the slot of a call whose outcome is known."""
        self._free.append(call)

    def take_free(self) -> list[str]:
        """Take the slots that no call uses. Their names are not used again."""
        if self._pid != os.getpid():
            return []
        free, self._free = self._free, []
        return [call.slot for call in free]
