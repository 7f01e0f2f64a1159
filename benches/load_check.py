"""After the overload: waits until no operation is queued, then compares accepted pushes with the queue."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

from weir.broker.redis import RedisBroker
from weir.control.database import Database
from weir.control.sql import NamedQuery
from weir.model.names import QueueRef
from weir.operations.queue import OperationQueue

_WAITS = NamedQuery(
    name="waits",
    sentence="How long finished operations waited.",
    text="SELECT id, finished_ms - created_ms AS wait_ms FROM weir.operations WHERE status = 'completed'",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    delivered: int
    lost: int
    duplicates: int
    out_of_order: int


async def drained_after_s(database: Database, *, patience_s: float = 120.0) -> float:
    """Wait until no operation is queued any more, and return the seconds."""
    queue, started = OperationQueue(database), time.perf_counter()
    while await queue.depth():
        if time.perf_counter() - started > patience_s:
            raise RuntimeError(f"the operation queue did not drain within {patience_s:g} s")
        await asyncio.sleep(0.05)
    return time.perf_counter() - started


async def verdict(
    broker: RedisBroker, queue: QueueRef, accepted: list[tuple[int, int]], *, messages: int
) -> Verdict:
    """Dequeue all messages, and count the pushes that are missing, doubled or out of order.

    Each push contains `messages` messages with the same content: its producer and number.
    """
    promised = set(accepted)
    seen: Counter[tuple[int, int]] = Counter()
    last: dict[int, int] = {}
    overtaken = 0
    while deliveries := await broker.dequeue(queue, consumer="check", limit=1000, lease_ms=600_000):
        for delivery in deliveries:
            producer, number = map(int, delivery.payload.strip(b'"').split(b"-"))
            seen[producer, number] += 1
            if (producer, number) in promised:
                overtaken += number < last.get(producer, -1)
                last[producer] = number
        await broker.ack([delivery.lease for delivery in deliveries])
    return Verdict(
        delivered=sum(seen.values()),
        lost=sum(1 for one in accepted if seen[one] < messages),
        duplicates=sum(1 for count in seen.values() if count > messages),
        out_of_order=overtaken,
    )


async def estimates_within(database: Database, estimates: dict[bytes, int], *, factor: float) -> float | None:
    """The share of estimates that were right within a factor; None if there were no estimates."""
    rows = await database.fetch(_WAITS)
    pairs = [
        (estimates[key], max(1, row["wait_ms"]))
        for row in rows
        if (key := str(row["id"]).encode()) in estimates
    ]
    if not pairs:
        return None
    right = sum(1 for estimate, wait in pairs if 1 / factor <= max(1, estimate) / wait <= factor)
    return right / len(pairs)
