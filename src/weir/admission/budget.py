"""How much may be queued for load: a burst at once, and a small share of what is executed after that.

A queued push costs about twice a direct one, and drains through the same broker, so a queue absorbs a burst
but cannot carry a load that lasts. Whoever queued for load has spent from the budget; it fills again while
there is no pressure, and under pressure only by a share of what is executed. What each holder spent is
remembered for as long as a whole budget takes to fill, so that a spent one is not held against others.
"""

from __future__ import annotations

from weir.model.holders import Holder


class QueueBudget:
    def __init__(self, *, burst: int = 100, share: float = 0.005, refill_s: float = 10.0) -> None:
        self._burst = float(burst)
        self._share = share
        self._per_s = burst / refill_s
        self._resume = burst / 20
        """Once the budget is spent, queueing resumes only at this much. Every queued operation makes the
        later ones of its partition queue as well, so a few bursts cost less than many single ones."""
        self._left = self._burst
        self._spent = False
        self._debts: dict[Holder, float] = {}

    @property
    def open(self) -> bool:
        """Whether an operation may be queued for load."""
        return not self._spent

    def owes_little(self, holder: Holder) -> bool:
        """Whether one more keeps the holder within its share, of a burst that others spent some of."""
        debt = self._debts.get(holder, 0.0)
        return not debt or (debt + 1) * max(2, len(self._debts)) <= self._burst

    def spend(self, operations: int, holder: Holder) -> None:
        self._left = max(-self._burst, self._left - operations)
        self._spent = self._spent or self._left < 1
        self._debts[holder] = self._debts.get(holder, 0.0) + operations

    def passed(self, seconds: float) -> None:
        """Some time has passed, with pressure or without."""
        if self._debts:
            paid = self._per_s * seconds / len(self._debts)
            self._debts = {holder: debt - paid for holder, debt in self._debts.items() if debt > paid}

    def give_back(self, operations: int, holder: Holder) -> None:
        """So many of a holder's were not queued after all."""
        self._debts[holder] = max(0.0, self._debts.get(holder, 0.0) - operations)
        self._earn(operations)

    def executed(self) -> None:
        """An operation was executed under pressure."""
        self._earn(self._share)

    def rested(self, seconds: float) -> None:
        """There was no pressure for a while."""
        self._earn(self._per_s * seconds)

    def _earn(self, operations: float) -> None:
        self._left = min(self._burst, self._left + operations)
        if self._left >= self._resume:
            self._spent = False
