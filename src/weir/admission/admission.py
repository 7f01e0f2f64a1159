"""Admission of one process: its readings, its limits and its last decisions, without any I/O."""

from __future__ import annotations

import time
from collections.abc import Callable

from weir.admission.capacity import AdaptiveLimit, FairShares, QueueBudget
from weir.admission.decide import (
    KNEE,
    AdmissionPolicy,
    Decision,
    Pressure,
    Rejection,
    decide,
    deep,
    rejection,
)
from weir.admission.kinds import OperationType
from weir.errors import WeirError
from weir.model.asyncio_tasks import AT_ONCE
from weir.model.holders import Holder

MESSAGES_PER_WEIGHT = 50
"""A push on its way into the queue counts as one operation per 50 messages."""

CALLS_PER_WEIGHT = 8
"""An operation in flight counts as one per 8 broker calls: a batch for 1,000 queues makes 1,000 calls."""


class Admission:
    """Holds what others measured (lag, depth, connections), and counts what is in flight itself.

    Under pressure, requests of a holder below its fair share are executed all the same, so that it never pays
    for the load of others. For this reason about twice the limit may be in flight.
    """

    def __init__(
        self,
        *,
        policy: AdmissionPolicy | None = None,
        limit: AdaptiveLimit | None = None,
        budget: QueueBudget | None = None,
        enabled: bool = True,
    ) -> None:
        self.policy = policy or AdmissionPolicy()
        self.limit = limit or AdaptiveLimit()
        self.queueing_limit = AdaptiveLimit(target_ms=40.0)
        self.budget = budget or QueueBudget()
        self.enabled = enabled
        self.shares = FairShares()
        """What is in flight or arriving, per holder."""
        self.in_flight = 0
        self.beyond = 0
        """How many operations in flight began beyond the limit."""
        self.arriving = 0
        self.queueing = 0
        self.queueing_shares = FairShares()
        """What is on its way into the operation queue, per holder."""
        self.lag_ms = 0.0
        self.depth = 0
        self.no_room: Callable[[], WeirError | None] = lambda: None
        """Why messages are refused whatever the load is; None if they are not."""
        self.busy_connections = 0
        self.connections = 0
        self._last = dict.fromkeys(OperationType, Decision.EXECUTE)
        self._calm = self.policy.calm
        self._calm_share = self._calm / KNEE
        self._calm_lag_ms = self.policy.lag_limit_ms * self.policy.release

    @property
    def pressure(self) -> Pressure:
        return self._pressure(self.in_flight, self.queueing)

    def _pressure(self, in_flight: int, queueing: int) -> Pressure:
        return Pressure(
            busy_connections=self.busy_connections,
            connections=self.connections,
            in_flight=in_flight,
            queueing=queueing,
            queueing_limit=self.queueing_limit.limit,
            limit=self.limit.limit,
            lag_ms=self.lag_ms,
            depth=self.depth,
            may_queue=self.budget.open,
        )

    def _calm_with(self, in_flight: int) -> bool:
        """Whether the pressure is below every threshold, so that there is nothing to decide."""
        return (
            in_flight <= self.limit.limit * self._calm_share
            and self.lag_ms <= self._calm_lag_ms
            and self.busy_connections <= self.connections * self._calm
        )

    @property
    def pressed(self) -> bool:
        """Whether work that can wait should wait."""
        return self.enabled and not self._calm_with(self.in_flight + 1)

    def decide(self, kind: OperationType, holder: Holder) -> Decision:
        """Decide about one more request, at the pressure that executing it would cause."""
        # Remembered before shares count: an exception for one holder must not end the shedding of others.
        decision = self._last[kind] = self._decided(kind, self.in_flight + 1, self.queueing)
        return self._shared(decision, holder)

    def peek(self, kind: OperationType, holder: Holder) -> Decision:
        """The decision that `decide` would make now, without remembering it."""
        return self._shared(self._decided(kind, self.in_flight + 1, self.queueing), holder)

    def let_in(self, kind: OperationType, holder: Holder) -> bool:
        """Let one more request in if there is room beside the arriving ones; return whether it is in."""
        if not self.has_room(kind, holder):
            return False
        self.arriving += 1
        self.shares.take(holder)
        return True

    def count_arrived(self, holder: Holder) -> None:
        """Note that a request that was let in has begun."""
        self.arriving -= 1
        self.shares.give_back(holder)

    def has_room(self, kind: OperationType, holder: Holder) -> bool:
        """Whether one more request could be let in now."""
        coming = self.in_flight + self.arriving
        queueing = self.queueing + max(0, coming - self.limit.limit)
        return self._shared(self._decided(kind, coming + 1, queueing), holder) is not Decision.REJECT

    def _decided(self, kind: OperationType, in_flight: int, queueing: int) -> Decision:
        if not self.enabled or self._calm_with(in_flight):
            return Decision.EXECUTE
        return decide(kind, self._pressure(in_flight, queueing), self.policy, last=self._last[kind])

    def rejection(self, kind: OperationType) -> Rejection:
        """Why one more request would be rejected now."""
        pressure = self._pressure(self.in_flight + 1, self.queueing)
        return rejection(kind, pressure, self.policy, last=self._last[kind])

    def _shared(self, decision: Decision, holder: Holder) -> Decision:
        """EXECUTE if the holder is below its share, else the decision."""
        if decision is Decision.EXECUTE or self.beyond >= self.limit.limit:
            return decision
        # A process that cannot keep up executes only `floor` operations, and holders share those.
        capacity = self.policy.floor if self.lag_ms > self._calm_lag_ms else self.limit.limit
        return Decision.EXECUTE if self.shares.allows(holder, capacity) else decision

    def may_queue(self, kind: OperationType, operations: int, holder: Holder, *, for_load: bool) -> bool:
        """Whether operations may enter the queue. If they enter for load, they are taken from the budget."""
        if not self.enabled:
            return True
        if deep(kind, self.pressure, self.policy, last=self._last[kind]) or not self._may_enter(holder):
            return False
        if for_load:
            if not self.budget.open and not self._may_overspend(holder):
                return False
            self.budget.spend(operations, holder)
        return True

    def _may_enter(self, holder: Holder) -> bool:
        """Whether one more may enter the queue; beyond the limit, only if its holder is below its share."""
        limit = self.queueing_limit.limit
        return self.queueing < limit or self.queueing_shares.allows(holder, limit)

    def _may_overspend(self, holder: Holder) -> bool:
        """Whether a holder may queue although the budget is spent, because others spent it."""
        return self.shares.has_others(holder) and self.budget.owes_little(holder)

    def return_unqueued(self, operations: int, holder: Holder) -> None:
        """Give operations back to the budget that did not enter the queue after all."""
        if self.enabled and operations:
            self.budget.give_back(operations, holder)

    def count_rest(self, seconds: float) -> None:
        """Note that time has passed; without pressure it fills the budget."""
        self.budget.pay_debts(seconds)
        if self.depth == 0 and self.in_flight <= self.limit.limit / 4:
            self.budget.refill(seconds)

    def entering(self, messages: int, holder: Holder) -> Entering:
        """Count a request on its way into the operation queue; one with many messages counts as several."""
        return Entering(self, max(1, messages // MESSAGES_PER_WEIGHT), holder)

    def executing(self, holder: Holder, *, calls: int = 1) -> Executing:
        """Count one direct operation in flight, and learn from how long it took.

        An operation that makes many broker calls counts as several, but never as more than the limit.
        """
        return Executing(self, holder, calls)


class Executing:
    """One direct operation in flight, while the block runs."""

    __slots__ = ("_admission", "_beyond", "_calls", "_holder", "_running", "_started", "_weight")

    def __init__(self, admission: Admission, holder: Holder, calls: int) -> None:
        self._admission = admission
        self._holder = holder
        self._calls = calls

    def __enter__(self) -> None:
        admission = self._admission
        self._weight = (
            1 if self._calls == 1 else min(admission.limit.limit, -(-self._calls // CALLS_PER_WEIGHT))
        )
        admission.shares.take(self._holder, self._weight)
        admission.in_flight += self._weight
        self._beyond = admission.in_flight > admission.limit.limit
        admission.beyond += self._beyond
        self._running, self._started = admission.in_flight, time.perf_counter()

    def __exit__(self, *_: object) -> None:
        admission = self._admission
        admission.in_flight -= self._weight
        admission.beyond -= self._beyond
        admission.shares.give_back(self._holder, self._weight)
        # The request waited in the event loop before the timer started, so add how late the loop is.
        turns = -(-self._calls // AT_ONCE)
        took_ms = (time.perf_counter() - self._started) * 1000 / turns + admission.lag_ms
        admission.limit.observe(latency_ms=took_ms, in_flight=self._running)
        admission.budget.earn_share()


class Entering:
    """Operations of one request on their way into the operation queue, while the block runs."""

    __slots__ = ("_admission", "_holder", "_running", "_started", "_weight")

    def __init__(self, admission: Admission, weight: int, holder: Holder) -> None:
        self._admission = admission
        self._weight = weight
        self._holder = holder

    def __enter__(self) -> None:
        self._admission.queueing += self._weight
        self._admission.queueing_shares.take(self._holder, self._weight)
        self._running, self._started = self._admission.queueing, time.perf_counter()

    def __exit__(self, *_: object) -> None:
        admission = self._admission
        admission.queueing -= self._weight
        admission.queueing_shares.give_back(self._holder, self._weight)
        took_ms = (time.perf_counter() - self._started) * 1000
        admission.queueing_limit.observe(latency_ms=took_ms, in_flight=self._running)
