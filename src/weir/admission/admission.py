"""Who gets in, for one process: readings, the limit and the last decisions, without any I/O."""

from __future__ import annotations

import time

from weir.admission.budget import QueueBudget
from weir.admission.decide import Decision, Rejection, decide, full, rejection
from weir.admission.kinds import OperationType
from weir.admission.limit import AdaptiveLimit
from weir.admission.policy import KNEE, Policy
from weir.admission.pressure import Pressure

MESSAGES_PER_WEIGHT = 50
"""A push on its way into the queue counts as one operation per 50 messages."""


class Admission:
    """Holds what others measured (lag, depth, connections) and counts what is in flight itself."""

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        limit: AdaptiveLimit | None = None,
        budget: QueueBudget | None = None,
        enabled: bool = True,
    ) -> None:
        self.policy = policy or Policy()
        self.limit = limit or AdaptiveLimit()
        self.queueing_limit = AdaptiveLimit(initial=16, minimum=4, target_ms=40.0)
        self.budget = budget or QueueBudget()
        self.enabled = enabled
        self.in_flight = 0
        self.arriving = 0
        self.queueing = 0
        self.lag_ms = 0.0
        self.depth = 0
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
        """Below every threshold, so that nothing needs to be weighed."""
        return (
            in_flight <= self.limit.limit * self._calm_share
            and self.lag_ms <= self._calm_lag_ms
            and self.busy_connections <= self.connections * self._calm
        )

    @property
    def pressed(self) -> bool:
        """Whether what can wait should."""
        return self.enabled and not self._calm_with(self.in_flight + 1)

    def decide(self, kind: OperationType) -> Decision:
        decision = self._last[kind] = self.peek(kind)
        return decision

    def peek(self, kind: OperationType) -> Decision:
        """What would be decided now, without deciding it: under the pressure that executing it would make."""
        return self._decided(kind, self.in_flight + 1, self.queueing)

    def let_in(self, kind: OperationType) -> bool:
        """Whether one more may come in beside those that are on their way in already; if so, it is too."""
        if not self.has_room(kind):
            return False
        self.arriving += 1
        return True

    def has_room(self, kind: OperationType) -> bool:
        """Whether one more could come in now."""
        coming = self.in_flight + self.arriving
        queueing = self.queueing + max(0, coming - self.limit.limit)
        return self._decided(kind, coming + 1, queueing) is not Decision.REJECT

    def _decided(self, kind: OperationType, in_flight: int, queueing: int) -> Decision:
        if not self.enabled or self._calm_with(in_flight):
            return Decision.EXECUTE
        return decide(kind, self._pressure(in_flight, queueing), self.policy, last=self._last[kind])

    def rejection(self, kind: OperationType) -> Rejection:
        """Why one more would be rejected now."""
        pressure = self._pressure(self.in_flight + 1, self.queueing)
        return rejection(kind, pressure, self.policy, last=self._last[kind])

    def may_queue(self, kind: OperationType, operations: int, *, for_load: bool) -> bool:
        """Whether operations may enter the queue; those that do for load are taken from the budget."""
        if not self.enabled:
            return True
        if full(kind, self.pressure, self.policy, last=self._last[kind]):
            return False
        if for_load:
            if not self.budget.open:
                return False
            self.budget.spend(operations)
        return True

    def rested(self, seconds: float) -> None:
        """Some time has passed; without pressure it fills the budget."""
        if self.depth == 0 and self.in_flight <= self.limit.limit / 4:
            self.budget.rested(seconds)

    def entering(self, messages: int) -> Entering:
        """Count operations on their way into the operation queue, a large one for several."""
        return Entering(self, max(1, messages // MESSAGES_PER_WEIGHT))

    def executing(self) -> Executing:
        """Count one direct operation in flight and learn from how long it took."""
        return Executing(self)


class Executing:
    """One direct operation in flight, while the block runs."""

    __slots__ = ("_admission", "_running", "_started")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def __enter__(self) -> None:
        self._admission.in_flight += 1
        self._running, self._started = self._admission.in_flight, time.perf_counter()

    def __exit__(self, *_: object) -> None:
        admission = self._admission
        admission.in_flight -= 1
        # The request waited in the event loop before the timer started, so add how late the loop is.
        took_ms = (time.perf_counter() - self._started) * 1000 + admission.lag_ms
        admission.limit.observe(latency_ms=took_ms, in_flight=self._running)
        admission.budget.executed()


class Entering:
    """Operations of one request on their way into the operation queue, while the block runs."""

    __slots__ = ("_admission", "_running", "_started", "_weight")

    def __init__(self, admission: Admission, weight: int) -> None:
        self._admission = admission
        self._weight = weight

    def __enter__(self) -> None:
        self._admission.queueing += self._weight
        self._running, self._started = self._admission.queueing, time.perf_counter()

    def __exit__(self, *_: object) -> None:
        admission = self._admission
        admission.queueing -= self._weight
        took_ms = (time.perf_counter() - self._started) * 1000
        admission.queueing_limit.observe(latency_ms=took_ms, in_flight=self._running)
