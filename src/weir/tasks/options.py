"""The options of a task: what it wants of its queue, and what a single push says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime

from weir.errors import Misconfigured
from weir.model.durations import Duration
from weir.spec.ir import DeliveryPolicy, Ordering, QueueSpec, Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """What a task wants of its queue. None leaves an option to the queue's other tasks, or to the default."""

    max_attempts: int | None = None
    initial_backoff_ms: int | None = None
    max_backoff_ms: int | None = None
    handler_timeout_ms: int | None = None
    lease_ms: int | None = None
    concurrency: int | None = None
    max_depth: int | None = None
    max_age_ms: int | None = None
    ordering: Ordering | None = None
    dead_letter_queue: str | None = None

    def joined(self, other: QueueOptions, *, queue: str, task: str) -> QueueOptions:
        """Both together; Misconfigured if they differ, because a queue makes one promise to all its tasks."""
        merged = {}
        for one in fields(self):
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            if mine is not None and theirs is not None and mine != theirs:
                raise Misconfigured(
                    f"the task `{task}` wants `{one.name}` {theirs} of the queue `{queue}`, which has {mine} "
                    "for another task; give both the same, or another queue"
                )
            merged[one.name] = theirs if mine is None else mine
        return QueueOptions(**merged)

    def spec(self, name: str) -> QueueSpec:
        """The queue as a spec would describe it."""
        delivery = {one: value for one in _DELIVERY if (value := getattr(self, one)) is not None}
        return QueueSpec(
            name=name,
            ordering=self.ordering or Ordering.UNORDERED,
            retention=Retention(max_age_ms=self.max_age_ms, max_depth=self.max_depth),
            delivery=DeliveryPolicy(**delivery),
            concurrency=self.concurrency,
        )


_DELIVERY = (
    "max_attempts",
    "initial_backoff_ms",
    "max_backoff_ms",
    "handler_timeout_ms",
    "lease_ms",
    "dead_letter_queue",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    """The options of one push; `AsyncWeir.push` says what each means."""

    key: str | None = None
    priority: int | None = None
    delay: Duration | None = None
    deliver_at: datetime | None = None
    ttl: Duration | None = None
    idempotency_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


NO_OPTIONS = PushOptions()
