"""Idempotency keys for the pushes of a handler: the same in every attempt."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(slots=True)
class PushKeys:
    """The keys of one attempt at a message.

    Another attempt makes the same keys for the same pushes, in whatever order. So no message is added twice.
    """

    message_id: str
    _made: dict[str, int] = field(default_factory=dict)

    def make(self, target: str, payload: bytes) -> str:
        """The key of a push to a task or a queue. Equal pushes of one attempt are numbered."""
        push = hashlib.blake2b(
            target.encode() + b"\0" + payload, digest_size=16, person=b"weir push"
        ).hexdigest()
        number = self._made[push] = self._made.get(push, 0) + 1
        return f"{self.message_id}:{push}:{number}"
