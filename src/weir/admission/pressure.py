"""How hard the process is pressed, as one frozen reading."""

from __future__ import annotations

from dataclasses import dataclass

from weir.admission.policy import KNEE


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """One reading. `busy_connections` counts connections in use, not those merely opened."""

    busy_connections: int = 0
    connections: int = 0
    """0: the store has no fixed number of connections, or nobody counts them."""
    in_flight: int = 0
    limit: int = 1
    lag_ms: float = 0.0
    depth: int = 0

    queueing: int = 0
    """Operations on their way into the operation queue."""
    queueing_limit: int = 128
    """How many may be on that way at once; more are rejected."""
    may_queue: bool = True
    """Whether the budget for queueing under load has something left."""

    @property
    def utilization(self) -> float:
        """The worse of busy connections, and operations in flight against the limit."""
        pool = self.busy_connections / self.connections if self.connections else 0.0
        return max(pool, KNEE * self.in_flight / max(1, self.limit))
