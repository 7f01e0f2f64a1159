"""Who gets in, for one process: readings, the limit and the last decisions, without any I/O."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from weir.admission.decide import Decision, decide, full
from weir.admission.kinds import OperationType
from weir.admission.limit import AdaptiveLimit
from weir.admission.policy import Policy
from weir.admission.pressure import Pressure


class Admission:
    """Holds what others measured (lag, depth, connections) and counts what is in flight itself."""

    def __init__(
        self, *, policy: Policy | None = None, limit: AdaptiveLimit | None = None, enabled: bool = True
    ) -> None:
        self.policy = policy or Policy()
        self.limit = limit or AdaptiveLimit()
        self.queueing_limit = AdaptiveLimit(initial=32, minimum=4)
        self.enabled = enabled
        self.in_flight = 0
        self.queueing = 0
        self.lag_ms = 0.0
        self.depth = 0
        self.busy_connections = 0
        self.connections = 0
        self._last: dict[OperationType, Decision] = {}

    @property
    def pressure(self) -> Pressure:
        return self._pressure(self.in_flight)

    def _pressure(self, in_flight: int) -> Pressure:
        return Pressure(
            busy_connections=self.busy_connections,
            connections=self.connections,
            in_flight=in_flight,
            queueing=self.queueing,
            queueing_limit=self.queueing_limit.limit,
            limit=self.limit.limit,
            lag_ms=self.lag_ms,
            depth=self.depth,
        )

    def decide(self, kind: OperationType) -> Decision:
        if not self.enabled:
            return Decision.EXECUTE
        last = self._last.get(kind, Decision.EXECUTE)
        decision = self._decided(kind, last)
        self._last[kind] = decision
        return decision

    def _decided(self, kind: OperationType, last: Decision) -> Decision:
        """The decision under the pressure that there would be if it were executed."""
        return decide(kind, self._pressure(self.in_flight + 1), self.policy, last=last)

    def peek(self, kind: OperationType) -> Decision:
        """What would be decided now, without deciding it."""
        if not self.enabled:
            return Decision.EXECUTE
        return self._decided(kind, self._last.get(kind, Decision.EXECUTE))

    def full(self, kind: OperationType) -> bool:
        """Whether an operation that must keep its order could not be queued any more."""
        return full(kind, self.pressure, self.policy, last=self._last.get(kind, Decision.EXECUTE))

    @contextmanager
    def entering(self) -> Iterator[None]:
        """Count operations on their way into the operation queue."""
        self.queueing += 1
        running, started = self.queueing, time.perf_counter()
        try:
            yield
        finally:
            self.queueing -= 1
            took_ms = (time.perf_counter() - started) * 1000
            self.queueing_limit.observe(latency_ms=took_ms, in_flight=running)

    @contextmanager
    def executing(self) -> Iterator[None]:
        """Count one direct operation in flight and learn from how long it took."""
        self.in_flight += 1
        running, started = self.in_flight, time.perf_counter()
        try:
            yield
        finally:
            self.in_flight -= 1
            self.limit.observe(latency_ms=(time.perf_counter() - started) * 1000, in_flight=running)
