"""The states and events of the memory broker, as the Redis broker would answer and append them."""

from __future__ import annotations

from collections.abc import Sequence

from weir.model.message import QueueState
from weir.telemetry.codec import MetricEvent
from weir.telemetry.events import QueueOperation
from weir.testing.memory_queue import MemoryCounts, QueueModel

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


def queue_state(
    model: QueueModel, siblings: Sequence[QueueModel], *, environment_limit: int | None, now_ms: int
) -> QueueState:
    """A queue as it is now; its siblings are all queues of its environment, itself included."""
    return QueueState(
        queue=model.ref,
        depth=model.depth,
        delayed=model.delayed(now_ms),
        running=model.running,
        limit=model.spec.concurrency,
        environment_depth=sum(sibling.depth for sibling in siblings),
        environment_running=sum(sibling.running for sibling in siblings),
        environment_limit=environment_limit,
        oldest_age_ms=model.oldest_age(now_ms),
        paused=model.paused,
        popped=model.popped or model.odometers["dequeued"] > 0,
        odometers=dict(model.odometers),
    )
