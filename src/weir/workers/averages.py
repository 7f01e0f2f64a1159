"""The averages of a queue's recent messages, by which a worker decides how many to fetch ahead."""

from __future__ import annotations

from dataclasses import dataclass

# The weight of the newest message: about the last 16 messages count.
_NEWEST = 1 / 16


@dataclass(slots=True)
class QueueAverages:
    """How long handlers of a queue take, and how large its messages are."""

    handler_s: float
    message_bytes: float = 0.0
    is_known: bool = False
    waiting: int = 0
    """How many of its messages wait for a slot."""

    def note(self, *, seconds: float, size: int) -> None:
        """Add one message. The first message replaces the assumed values."""
        weight = _NEWEST if self.is_known else 1.0
        self.handler_s += (seconds - self.handler_s) * weight
        self.message_bytes += (size - self.message_bytes) * weight
        self.is_known = True
