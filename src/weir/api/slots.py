"""How many requests, long polls and streams are in progress at once, and whose they are."""

from __future__ import annotations

from collections.abc import Callable

from weir.admission.shares import FairShares
from weir.errors import WeirError
from weir.model.holders import STRANGERS, Holder


class Capacity:
    """So many at once. The last fifth is for holders below their fair share: one cannot take it all."""

    def __init__(self, most: int, refusal: Callable[[], WeirError], *, most_each: int | None = None) -> None:
        self.shares = FairShares()
        self._most = most
        self._open_to_all = most - most // 5
        self._most_each = most_each
        self._refusal = refusal

    def take(self, holder: Holder) -> None:
        """Count one more, or raise the refusal."""
        shares = self.shares
        if shares.total >= self._open_to_all and not self._allows(holder):
            raise self._refusal()
        if self._most_each is not None and shares.held(holder) >= self._most_each:
            raise self._refusal()
        shares.take(holder)

    def _allows(self, holder: Holder) -> bool:
        return self.shares.total < self._most and self.shares.allows(holder, self._open_to_all)


class RequestSlot:
    """The part of a capacity that one request takes, from when it is complete until it is answered."""

    __slots__ = ("_capacity", "_taken", "holder")

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._taken = False
        self.holder = STRANGERS

    def take(self) -> None:
        """Take it, unless that is done already; raises the refusal if nothing is left."""
        if not self._taken:
            self._capacity.take(self.holder)
            self._taken = True

    def belongs_to(self, holder: Holder) -> None:
        """The credential of the request is verified."""
        if self._taken:
            self._capacity.shares.give_back(self.holder)
            self._capacity.shares.take(holder)
        self.holder = holder

    def release(self) -> None:
        if self._taken:
            self._taken = False
            self._capacity.shares.give_back(self.holder)
