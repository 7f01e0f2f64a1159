"""A held message: a message in the hands of a worker, from its claim until it is settled."""

from __future__ import annotations

import asyncio

from weir.model.message import Delivery
from weir.spec.ir import QueueSpec
from weir.workers.averages import QueueAverages
from weir.workers.outcome import HandlerOutcome


class HeldMessage:
    """One message, and what the worker knows about it so far.

    It changes while it passes through the worker: making a new value per step cost 5 us per message.
    """

    __slots__ = (
        "averages",
        "claimed_at",
        "delivery",
        "expected_s",
        "finished_at_ms",
        "give_up_at",
        "refused",
        "renewed_at",
        "spec",
        "started_at_ms",
        "stopped_by",
        "task",
    )

    def __init__(self, delivery: Delivery, spec: QueueSpec, *, claimed_at: float) -> None:
        self.delivery = delivery
        self.spec = spec
        self.claimed_at = self.renewed_at = claimed_at
        self.averages: QueueAverages | None = None
        """The averages of its queue; `Prefetch` sets them."""
        self.expected_s = 0.0
        """How long its handler was expected to take when the message was claimed."""
        self.task: asyncio.Task[None] | None = None
        """The slot that runs its handler; None while it waits for one."""
        self.started_at_ms: int | None = None
        self.finished_at_ms = 0
        self.refused = False
        """Its outcome could not be settled as it was; a plain failure that says why took its place."""
        self.stopped_by: HandlerOutcome | None = None
        """The outcome if the attempt was stopped; it replaces the outcome of the handler."""
        self.give_up_at = 0.0
        """When to stop trying to settle it, by the monotonic clock."""

    def end(self, *, now_ms: int) -> None:
        """Note when the attempt ended. A handler that never began took no time."""
        self.finished_at_ms = now_ms
        if self.started_at_ms is None:
            self.started_at_ms = now_ms
