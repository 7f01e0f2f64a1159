"""The events of the memory broker: what the Redis broker would append to its stream."""

from __future__ import annotations

from weir.model.message import QueueState
from weir.telemetry.codec import MetricEvent
from weir.telemetry.events import QueueOperation
from weir.testing.memory_queue import MemoryCounts

_OPERATIONS = list(QueueOperation)


def queue_event(
    state: QueueState, operation: QueueOperation, counts: MemoryCounts, *, samples: tuple[int, ...]
) -> MetricEvent:
    """One call that changed one queue, and the queue after it."""
    queue = state.queue
    return MetricEvent(
        dimensions=queue.names,
        values={
            "operation": _OPERATIONS.index(operation),
            **counts.values,
            "queue_length": state.depth,
            "running": state.running,
            "queue_limit": state.limit or 0,
            "environment_length": state.environment_depth,
            "environment_running": state.environment_running,
            "environment_limit": state.environment_limit or 0,
            "paused": int(state.paused),
            "oldest_age_ms": state.oldest_age_ms,
            **{f"{name}_total": total for name, total in state.odometers.items()},
        },
        samples=samples,
    )
