"""Fair shares: how much of something each holder has in progress."""

from __future__ import annotations

from weir.model.holders import Holder


class FairShares:
    """Counts what is in progress for each holder. Whoever has nothing in progress takes no memory."""

    __slots__ = ("_held", "total")

    def __init__(self) -> None:
        self._held: dict[Holder, int] = {}
        self.total = 0

    def take(self, holder: Holder, weight: int = 1) -> None:
        self._held[holder] = self._held.get(holder, 0) + weight
        self.total += weight

    def give_back(self, holder: Holder, weight: int = 1) -> None:
        held = self._held[holder]
        if held == weight:
            del self._held[holder]
        else:
            self._held[holder] = held - weight
        self.total -= weight

    def held(self, holder: Holder) -> int:
        return self._held.get(holder, 0)

    def has_others(self, holder: Holder) -> bool:
        """Whether anyone else has something in progress."""
        return len(self._held) > (holder in self._held)

    def allows(self, holder: Holder, capacity: int) -> bool:
        """Whether one more keeps the holder within its fair share of the capacity, of which others have some.

        One is always within it. Without others there is nothing to share.
        """
        held = self._held.get(holder, 0)
        return self.has_others(holder) and (not held or (held + 1) * len(self._held) <= capacity)
