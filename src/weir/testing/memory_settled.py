"""How leases of the memory broker were settled, so that a settlement may be asked for again."""

from __future__ import annotations

from collections.abc import Sequence

from weir.broker.layout import MOST_SETTLED, SETTLED_MS
from weir.model.message import LeaseRef, Settlement
from weir.telemetry.events import QueueOperation

_SETTLING = (QueueOperation.ACK, QueueOperation.NACK, QueueOperation.DEAD_LETTER)


class SettledLeases:
    """The last settlements; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._known: dict[LeaseRef, tuple[QueueOperation, Settlement, int]] = {}

    def answer(
        self,
        leases: Sequence[LeaseRef],
        answers: Sequence[Settlement],
        operation: QueueOperation,
        *,
        now: int,
    ) -> list[Settlement]:
        """The answers, where leases that were settled before in the same way get the same answer again."""
        if operation not in _SETTLING:
            return list(answers)
        told = []
        names = [LeaseRef(queue=one.queue, message_id=one.message_id, token=one.token) for one in leases]
        for name, answer in zip(names, answers, strict=True):
            how, before, at_ms = self._known.get(name, (None, answer, 0))
            repeats = answer is Settlement.LAPSED and how is operation and at_ms + SETTLED_MS > now
            told.append(before if repeats else answer)
        for name, answer in zip(names, answers, strict=True):
            if answer is not Settlement.LAPSED:
                self._known[name] = (operation, answer, now)
        while len(self._known) > 2 * MOST_SETTLED:
            del self._known[next(iter(self._known))]
        return told
