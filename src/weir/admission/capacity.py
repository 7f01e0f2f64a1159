"""How much a process takes: a limit that it learns, a budget for queueing under load, and fair shares."""

from __future__ import annotations

from weir.model.holders import Holder

WINDOW = 32
"""Operations between two corrections; while they are too slow, a quarter of that."""

# The settings have these as their defaults.
INITIAL_LIMIT = 16
MIN_LIMIT = 4
MAX_LIMIT = 1_024
TARGET_LATENCY_MS = 75.0
"""With 60 ms, 16 connections pushed a quarter less. With 100 ms, the p99 of a push was half as long again."""


class AdaptiveLimit:
    """How many operations the store really takes at once: found by watching their latency.

    Additive increase while latency is under the target and the limit is being used, multiplicative decrease
    when a window's latency is over it: the limit settles where the store, whatever its size, answers at about
    the target.
    """

    def __init__(
        self,
        *,
        initial: int = INITIAL_LIMIT,
        minimum: int = MIN_LIMIT,
        maximum: int = MAX_LIMIT,
        target_ms: float = TARGET_LATENCY_MS,
    ) -> None:
        self._limit = float(initial)
        self._minimum = minimum
        self._maximum = maximum
        self._target_ms = target_ms
        self._latency_ms = 0.0
        self._samples = 0
        self._peak = 0

    @property
    def limit(self) -> int:
        return int(self._limit)

    def observe(self, *, latency_ms: float, in_flight: int) -> None:
        """One operation ended after `latency_ms`; `in_flight` were running with it."""
        self._latency_ms += latency_ms
        self._samples += 1
        self._peak = max(self._peak, in_flight)
        mean_ms = self._latency_ms / self._samples
        if self._samples >= (WINDOW // 4 if mean_ms > self._target_ms else WINDOW):
            self._correct(mean_ms)

    def _correct(self, mean_ms: float) -> None:
        if mean_ms > self._target_ms:
            self._set(self._limit * max(0.7, self._target_ms / mean_ms))
        elif self._peak >= 0.8 * self._limit:
            self._set(self._limit + max(1.0, self._limit**0.5 / 2))
        self._latency_ms, self._samples, self._peak = 0.0, 0, 0

    def _set(self, limit: float) -> None:
        self._limit = min(float(self._maximum), max(float(self._minimum), limit))


class QueueBudget:
    """How much may be queued for load: a burst at once, then a small share of what is executed.

    A queued push costs about twice a direct one, and drains through the same broker, so a queue absorbs a
    burst but cannot carry a load that lasts. Each operation that is queued for load spends from the budget.
    The budget fills again while there is no pressure; under pressure it only gets a share of what is
    executed. The spending of each holder is remembered for as long as a whole budget takes to fill, so that
    it does not count against others.
    """

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
        """Whether one more operation keeps the holder within its share of the burst."""
        debt = self._debts.get(holder, 0.0)
        return not debt or (debt + 1) * max(2, len(self._debts)) <= self._burst

    def spend(self, operations: int, holder: Holder) -> None:
        self._left = max(-self._burst, self._left - operations)
        self._spent = self._spent or self._left < 1
        self._debts[holder] = self._debts.get(holder, 0.0) + operations

    def pay_debts(self, seconds: float) -> None:
        """Lower the debts, because time has passed, with pressure or without."""
        if self._debts:
            paid = self._per_s * seconds / len(self._debts)
            self._debts = {holder: debt - paid for holder, debt in self._debts.items() if debt > paid}

    def give_back(self, operations: int, holder: Holder) -> None:
        """Give back operations of a holder that were not queued after all."""
        self._debts[holder] = max(0.0, self._debts.get(holder, 0.0) - operations)
        self._earn(operations)

    def earn_share(self) -> None:
        """Fill the budget by a share of one operation, because one was executed."""
        self._earn(self._share)

    def refill(self, seconds: float) -> None:
        """Fill the budget, because there was no pressure for a while."""
        self._earn(self._per_s * seconds)

    def _earn(self, operations: float) -> None:
        self._left = min(self._burst, self._left + operations)
        if self._left >= self._resume:
            self._spent = False


class FairShares:
    """Counts what is in progress per holder. A holder with nothing in progress takes no memory."""

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
        """Whether one more keeps the holder within its fair share of the capacity.

        The first of a holder is always within it. False if no other holder has anything in progress, because
        then there is nothing to share.
        """
        held = self._held.get(holder, 0)
        return self.has_others(holder) and (not held or (held + 1) * len(self._held) <= capacity)
