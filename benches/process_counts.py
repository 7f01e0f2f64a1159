"""The cost of `ProcessCounts`: nanoseconds of processor time per counted call, without the stores.

.venv/bin/python -m benches.process_counts
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median

from weir.model.ids import new_message_id
from weir.model.message import Delivery, LeaseRef
from weir.model.names import QueueRef
from weir.telemetry.process_counts import ProcessCounts

ROUNDS = 7
REPEATS = 200_000
BATCH = 100


def measure() -> dict[str, float]:
    """The median over the rounds, per kind of call."""
    counts = ProcessCounts()
    one, batch = [_delivery()], [_delivery()] * BATCH
    delays_ms = [1_000]
    calls: dict[str, tuple[Callable[[], object], int]] = {
        "push": (lambda: counts.count_pushes(1), 1),
        "ack": (lambda: counts.count_acks(1), 1),
        "transaction": (counts.count_transaction, 1),
        "retry": (lambda: counts.count_retries(delays_ms), 1),
        "pop_alone": (lambda: counts.count_pops(one), 1),
        "pop_in_batch": (lambda: counts.count_pops(batch), BATCH),
    }
    found = {}
    for name, (call, items) in calls.items():
        found[f"{name}_ns"] = round(median(_round(call, items, counts) for _ in range(ROUNDS)), 1)
    return found


def _round(call: Callable[[], object], items: int, counts: ProcessCounts) -> float:
    repeats = REPEATS // items
    started = time.thread_time_ns()
    for _ in range(repeats):
        call()
    took_ns = time.thread_time_ns() - started
    counts.take()
    return took_ns / repeats / items


def _delivery() -> Delivery:
    queue = QueueRef(organization="acme", project="shop", environment="production", queue="orders")
    return Delivery(
        lease=LeaseRef(queue=queue, message_id=new_message_id(), token="t"),
        payload=b"",
        headers={},
        key=None,
        priority=4,
        attempt=1,
        enqueued_at_ms=0,
        available_at_ms=0,
        lease_until_ms=0,
        wait_ms=12,
    )


if __name__ == "__main__":
    print(json.dumps(measure()))
