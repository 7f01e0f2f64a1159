"""The seam between code that asks for pushes and settlements and code that executes them.

The API, webhooks and channels ask. A `Pusher` or a `Settler` answers for every item, in order. `attempt` and
`settle` execute at once; `admit`, `resume` and `traced` wrap them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from weir.errors import WeirError
from weir.model.ids import MessageId, NamedCall, OperationId
from weir.model.message import Failure, NewMessage, Settlement, Verb
from weir.model.names import QueueRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedCall:
    """The call of a client in direct mode, whose outcome the client does not know."""

    call: NamedCall
    place: int
    """Where the message stood in that call."""


class PushItem(msgspec.Struct, frozen=True, kw_only=True):
    """One message on its way into one queue."""

    queue: QueueRef
    message: NewMessage
    resumes: ResumedCall | None = None
    named: NamedCall | None = None
    """The call that its producer named. All items of its request have it, and are of one queue.

    A repeated request has the message ids of the first. Nobody else remembers them, so answers repeat them.
    """


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """The message is in the queue; `duplicate` means that it already was, under this id."""

    message_id: MessageId
    duplicate: bool = False


class SettleItem(Failure, frozen=True, kw_only=True):
    """One lease and what became of its message."""

    verb: Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    outcome: Settlement


SETTLED = {outcome: Settled(outcome=outcome) for outcome in Settlement}
"""One shared answer per outcome, because there are thousands of acks per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """Accepted for later: the operation is stored and takes effect in its order."""

    operation_id: OperationId
    position: int
    estimated_wait_ms: int | None
    reason: str
    message_id: MessageId | None = None
    lease_kept_ms: int | None = None
    """Of a settlement: for how long at least its lease cannot lapse, from now on. None for a push."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Not accepted, and why; the other items of the request are not affected."""

    error: WeirError


PushAnswer = Pushed | Queued | Refused
SettleAnswer = Settled | Queued | Refused


class Pusher(Protocol):
    """Puts messages into queues."""

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        """Answer for each item in order."""


class Settler(Protocol):
    """Settles leases."""

    async def settle(self, items: Sequence[SettleItem]) -> list[SettleAnswer]:
        """Answer for each item in order."""
