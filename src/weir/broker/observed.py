"""The one place where broker calls are timed and counted: `Observed(broker)` is itself a `Broker`.

weir_broker_call_duration_seconds{verb}    how long a call took; a dequeue that may wait is `dequeue_wait`
weir_broker_messages_total{verb}           messages, leases or queues that calls were about
weir_broker_errors_total{verb, code}       calls that failed, by the code of the error

A `BrokerActivity` is told what became of messages, for the metrics of the process. A `Tracer` writes a span
of messages that are handed out, and of replays and copies of deaths. All other spans are written elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import Metric

from weir.broker.broker import (
    Broker,
    BrokerActivity,
    CallAnswer,
    Entry,
    Gated,
    GateRule,
    Source,
    Swept,
)
from weir.broker.failures import is_store_failure
from weir.errors import WeirError
from weir.model.ids import MessageId, NamedCall
from weir.model.inspection import (
    EVERY_MESSAGE,
    MessageCounts,
    MessageDetail,
    MessageFilter,
    MessagePage,
    MessageState,
    Touched,
    Why,
)
from weir.model.limits import MAX_BATCH
from weir.model.message import (
    DeadMessage,
    Delivery,
    Enqueue,
    Enqueued,
    Failure,
    Kept,
    LeaseRef,
    NewMessage,
    QueueState,
    Settlement,
)
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import QueueSpec
from weir.tracing.requests import REQUEST_TRACE

if TYPE_CHECKING:
    from weir.tracing.tracer import Tracer

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

# Callers cancel these at a deadline of their own, so a cancelled call had no answer in time.
_WITH_DEADLINES = frozenset({"enqueue", "ack", "nack", "dead_letter", "settle_call"})


class Observer(Protocol):
    """Is told of every call once."""

    def count_call(self, verb: str, *, seconds: float, items: int) -> None: ...

    def count_failure(self, verb: str, *, seconds: float, code: str) -> None: ...


class PrometheusObserver:
    """Counts calls for Prometheus."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._seconds = Histogram(
            "weir_broker_call_duration_seconds",
            "How long a broker call took.",
            ["verb"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._items = Counter(
            "weir_broker_messages_total",
            "Messages, leases or queues that broker calls were about.",
            ["verb"],
            registry=registry,
        )
        self._errors = Counter(
            "weir_broker_errors_total", "Broker calls that failed.", ["verb", "code"], registry=registry
        )

    def count_call(self, verb: str, *, seconds: float, items: int) -> None:
        self._seconds.labels(verb).observe(seconds)
        self._items.labels(verb).inc(items)

    def count_failure(self, verb: str, *, seconds: float, code: str) -> None:
        self._seconds.labels(verb).observe(seconds)
        self._errors.labels(verb, code).inc()

    async def families(self) -> AsyncIterator[Metric]:
        """What was counted so far, for `/metrics`."""
        for family in self._registry.collect():
            yield family


class Observed:
    """A broker that reports each of its calls."""

    def __init__(
        self,
        inner: Broker,
        observer: Observer | None = None,
        *,
        activity: BrokerActivity | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.inner = inner
        self._observer = observer
        self._activity = activity
        self._tracer = tracer

    @contextmanager
    def _heard(self, verb: str, items: int) -> Iterator[list[int]]:
        """Time one call; its body may put another number of items in the list."""
        count, started = [items], time.perf_counter()
        try:
            yield count
        except BaseException as error:
            code = error.code if isinstance(error, WeirError) else type(error).__name__
            if self._observer is not None:
                self._observer.count_failure(verb, seconds=time.perf_counter() - started, code=code)
            if self._activity is not None and _is_failure(verb, error):
                self._activity.count_error()
            raise
        if self._observer is not None:
            self._observer.count_call(verb, seconds=time.perf_counter() - started, items=count[0])

    @property
    def shards(self) -> int:
        return self.inner.shards

    async def define(self, queue: QueueRef, spec: QueueSpec) -> None:
        with self._heard("define", 1):
            await self.inner.define(queue, spec)

    async def forget(self, queue: QueueRef) -> None:
        with self._heard("forget", 1):
            await self.inner.forget(queue)

    async def limit(self, environment: EnvironmentRef, concurrency: int | None) -> None:
        with self._heard("limit", 1):
            await self.inner.limit(environment, concurrency)

    async def enqueue(
        self,
        queue: QueueRef,
        messages: Sequence[NewMessage],
        *,
        entry: Entry = GateRule.OBEY,
    ) -> list[Enqueued]:
        # Replays and copies of deaths pass gates. No producer made them, so nobody else writes their span.
        if self._tracer is not None and entry is GateRule.PASS and messages:
            with self._tracer.forwarding(queue, messages) as sent:
                return await self._enqueue(queue, sent.messages, entry=entry)
        return await self._enqueue(queue, messages, entry=entry)

    async def _enqueue(
        self, queue: QueueRef, messages: Sequence[NewMessage], *, entry: Entry
    ) -> list[Enqueued]:
        with self._heard("enqueue", len(messages)):
            answers = await self.inner.enqueue(queue, messages, entry=entry)
        self._count_pushes(answers)
        return answers

    def _count_pushes(self, answers: Sequence[Enqueued] | Sequence[CallAnswer]) -> None:
        if self._activity is not None:
            self._activity.count_pushes(sum(one.outcome is Enqueue.ACCEPTED for one in answers))

    async def dequeue(
        self,
        source: Source,
        *,
        consumer: str,
        limit: int = 1,
        lease_ms: int | None = None,
        wait_ms: int = 0,
    ) -> list[Delivery]:
        verb = "dequeue" if wait_ms == 0 else "dequeue_wait"
        started_ns = 0 if self._tracer is None else time.time_ns()
        with self._heard(verb, 0) as count:
            deliveries = await self.inner.dequeue(
                source, consumer=consumer, limit=limit, lease_ms=lease_ms, wait_ms=wait_ms
            )
            count[0] = len(deliveries)
        if self._activity is not None:
            self._activity.count_pops(deliveries)
        if self._tracer is not None and deliveries:
            self._tracer.note_received(
                deliveries, consumer=consumer, started_ns=started_ns, request=REQUEST_TRACE.get()
            )
        return deliveries

    async def ack(
        self, leases: Sequence[LeaseRef], *, results: Sequence[bytes | None] = ()
    ) -> list[Settlement]:
        with self._heard("ack", len(leases)):
            answers = await self.inner.ack(leases, results=results)
        if self._activity is not None:
            self._activity.count_acks(answers.count(Settlement.DONE))
        return answers

    async def nack(self, failures: Sequence[Failure]) -> list[Settlement]:
        with self._heard("nack", len(failures)):
            answers = await self.inner.nack(failures)
        if self._activity is not None:
            self._activity.count_deaths(answers.count(Settlement.DEAD))
        return answers

    async def extend(self, leases: Sequence[LeaseRef], *, lease_ms: int) -> list[Settlement]:
        with self._heard("extend", len(leases)):
            return await self.inner.extend(leases, lease_ms=lease_ms)

    async def dead_letter(self, failures: Sequence[Failure]) -> list[Settlement]:
        with self._heard("dead_letter", len(failures)):
            answers = await self.inner.dead_letter(failures)
        if self._activity is not None:
            self._activity.count_deaths(len(answers) - answers.count(Settlement.LAPSED))
        return answers

    async def pause(self, queue: QueueRef) -> None:
        with self._heard("pause", 1):
            await self.inner.pause(queue)

    async def resume(self, queue: QueueRef) -> None:
        with self._heard("resume", 1):
            await self.inner.resume(queue)

    async def sweep(self, shard: int, *, limit: int = 1_000) -> Swept:
        with self._heard("sweep", 1):
            swept = await self.inner.sweep(shard, limit=limit)
        if self._activity is not None:
            self._activity.count_deaths(swept.dead + swept.expired)
        return swept

    async def heartbeat(self, shard: int, *, limit: int = 1_000) -> int:
        with self._heard("heartbeat", 1):
            return await self.inner.heartbeat(shard, limit=limit)

    async def state(self, queue: QueueRef) -> QueueState:
        with self._heard("state", 1):
            return await self.inner.state(queue)

    async def states(self, environment: EnvironmentRef) -> list[QueueState]:
        with self._heard("states", 1):
            return await self.inner.states(environment)

    async def take_dead(self, shard: int, *, limit: int = 1_000) -> list[DeadMessage]:
        with self._heard("take_dead", 1):
            return await self.inner.take_dead(shard, limit=limit)

    async def drop_dead(self, shard: int, message_ids: Sequence[MessageId]) -> None:
        with self._heard("drop_dead", len(message_ids)):
            await self.inner.drop_dead(shard, message_ids)

    async def holds(self, queue: QueueRef, message_ids: Sequence[MessageId]) -> list[bool]:
        with self._heard("holds", len(message_ids)):
            return await self.inner.holds(queue, message_ids)

    async def peek(self, queue: QueueRef, message_id: MessageId) -> Mapping[str, str] | None:
        with self._heard("peek", 1):
            return await self.inner.peek(queue, message_id)

    async def last_errors(self, queue: QueueRef, *, limit: int) -> list[str]:
        with self._heard("last_errors", 1):
            return await self.inner.last_errors(queue, limit=limit)

    async def list_messages(
        self,
        queue: QueueRef,
        state: MessageState,
        *,
        match: MessageFilter = EVERY_MESSAGE,
        cursor: str | None = None,
        limit: int = 50,
    ) -> MessagePage:
        with self._heard("list_messages", 0) as count:
            page = await self.inner.list_messages(queue, state, match=match, cursor=cursor, limit=limit)
            count[0] = len(page.messages)
        return page

    async def show_message(self, queue: QueueRef, message_id: MessageId) -> MessageDetail | None:
        with self._heard("show_message", 1):
            return await self.inner.show_message(queue, message_id)

    async def why(self, queue: QueueRef, message_id: MessageId) -> Why | None:
        with self._heard("why", 1):
            return await self.inner.why(queue, message_id)

    async def count_messages(self, queue: QueueRef) -> MessageCounts:
        with self._heard("count_messages", 1):
            return await self.inner.count_messages(queue)

    async def find_message(self, environment: EnvironmentRef, message_id: MessageId) -> QueueRef | None:
        with self._heard("find_message", 1):
            return await self.inner.find_message(environment, message_id)

    async def keep_progress(self, lease: LeaseRef, progress: bytes) -> bool:
        with self._heard("keep_progress", 1):
            return await self.inner.keep_progress(lease, progress)

    async def kept(self, environment: EnvironmentRef, message_id: MessageId) -> Kept | None:
        with self._heard("kept", 1):
            return await self.inner.kept(environment, message_id)

    async def were_cancelled(
        self, environment: EnvironmentRef, message_ids: Sequence[MessageId]
    ) -> list[bool]:
        with self._heard("were_cancelled", len(message_ids)):
            return await self.inner.were_cancelled(environment, message_ids)

    async def finish_member(self, environment: EnvironmentRef, group: str, *, member: int, of: int) -> bool:
        with self._heard("finish_member", 1):
            return await self.inner.finish_member(environment, group, member=member, of=of)

    async def find_idempotency_key(self, queue: QueueRef, idempotency_key: str) -> MessageId | None:
        with self._heard("find_idempotency_key", 1):
            return await self.inner.find_idempotency_key(queue, idempotency_key)

    async def run_now(self, queue: QueueRef, message_ids: Sequence[MessageId]) -> list[Touched]:
        with self._heard("run_now", len(message_ids)):
            return await self.inner.run_now(queue, message_ids)

    async def reschedule(
        self,
        queue: QueueRef,
        message_ids: Sequence[MessageId],
        *,
        at_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> list[Touched]:
        with self._heard("reschedule", len(message_ids)):
            return await self.inner.reschedule(queue, message_ids, at_ms=at_ms, delay_ms=delay_ms)

    async def change_priority(
        self, queue: QueueRef, message_ids: Sequence[MessageId], priority: int
    ) -> list[Touched]:
        with self._heard("change_priority", len(message_ids)):
            return await self.inner.change_priority(queue, message_ids, priority)

    async def cancel(self, queue: QueueRef, message_ids: Sequence[MessageId]) -> list[Touched]:
        with self._heard("cancel", len(message_ids)):
            return await self.inner.cancel(queue, message_ids)

    async def revoked(self, leases: Sequence[LeaseRef]) -> list[bool]:
        with self._heard("revoked", len(leases)):
            return await self.inner.revoked(leases)

    async def close_gates(
        self, queue: QueueRef, gates: Sequence[Gated], *, within_room: bool = False
    ) -> list[int | None]:
        with self._heard("close_gates", len(gates)):
            return await self.inner.close_gates(queue, gates, within_room=within_room)

    async def open_gates(self, queue: QueueRef, gates: Sequence[Gated]) -> None:
        with self._heard("open_gates", len(gates)):
            await self.inner.open_gates(queue, gates)

    async def void_gates(self, queue: QueueRef, gates: Sequence[Gated]) -> list[bool]:
        with self._heard("void_gates", len(gates)):
            return await self.inner.void_gates(queue, gates)

    async def stale_gates(
        self, shard: int, *, older_ms: int, skip: int = 0, limit: int = MAX_BATCH
    ) -> list[tuple[QueueRef, Gated]]:
        with self._heard("stale_gates", 1):
            return await self.inner.stale_gates(shard, older_ms=older_ms, skip=skip, limit=limit)

    async def settle_call(self, queue: QueueRef, call: NamedCall) -> list[CallAnswer]:
        with self._heard("settle_call", 1):
            answers = await self.inner.settle_call(queue, call)
        # Its enqueue had no answer, so its messages were not counted before.
        self._count_pushes(answers)
        return answers

    async def idle_calls(self, shard: int, *, idle_ms: int) -> list[str]:
        with self._heard("idle_calls", 1):
            return await self.inner.idle_calls(shard, idle_ms=idle_ms)

    async def forget_calls(self, shard: int, slots: Sequence[str], *, idle_ms: int) -> int:
        with self._heard("forget_calls", len(slots)):
            return await self.inner.forget_calls(shard, slots, idle_ms=idle_ms)

    async def now_ms(self, shard: int) -> int:
        with self._heard("now_ms", 1):
            return await self.inner.now_ms(shard)

    async def allow_direct(self, shard: int, *, until_ms: int) -> None:
        with self._heard("allow_direct", 1):
            await self.inner.allow_direct(shard, until_ms=until_ms)

    async def forbid_direct(self, shard: int) -> None:
        with self._heard("forbid_direct", 1):
            await self.inner.forbid_direct(shard)

    async def let_lapse(self, shard: int, *, until_ms: int) -> None:
        with self._heard("let_lapse", 1):
            await self.inner.let_lapse(shard, until_ms=until_ms)

    async def aclose(self) -> None:
        await self.inner.aclose()


def _is_failure(verb: str, error: BaseException) -> bool:
    """Whether the store failed. A refusal, such as NotFound, is an answer."""
    if isinstance(error, asyncio.CancelledError):
        return verb in _WITH_DEADLINES
    if isinstance(error, WeirError):
        return is_store_failure(error)
    return isinstance(error, Exception)
