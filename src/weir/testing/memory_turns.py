"""Whose turn it is in the memory broker: queues and environments that may be served, in rotation."""

from __future__ import annotations

from weir.model.names import EnvironmentRef, QueueRef

Ref = QueueRef | EnvironmentRef


class MemoryTurns:
    """A newcomer joins behind all that already wait for their turn."""

    def __init__(self) -> None:
        self._places: dict[Ref, int] = {}
        self._last = 0

    def environments(self) -> list[EnvironmentRef]:
        return [ref for ref in self._places if isinstance(ref, EnvironmentRef)]

    def place(self, ref: Ref) -> tuple[int, Ref]:
        """A sort key: the smallest is next."""
        return self._places.get(ref, 0), ref

    def take(self, ref: Ref) -> None:
        """Move a queue or environment to the end, because it had its turn."""
        self._last += 1
        if ref in self._places:
            self._places[ref] = self._last

    def join(self, ref: Ref, *, servable: bool) -> bool:
        """Add a queue or environment if it may be served, else remove it; return whether it was added."""
        if not servable:
            self.leave(ref)
            return False
        if ref in self._places:
            return False
        self._places[ref] = self._last
        return True

    def leave(self, ref: Ref) -> None:
        self._places.pop(ref, None)
