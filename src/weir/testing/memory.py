"""The memory broker: every promise of the broker seam in one process, for tests and as the model.

    broker = MemoryBroker(clock=clock)
    await broker.define(queue, QueueSpec(name=queue.queue))

Nothing is kept when the process ends. The Redis broker is tested against this one.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from weir.broker import checks
from weir.broker.broker import (
    HEARTBEAT_MS,
    CallAnswer,
    Entry,
    ForOperations,
    Gated,
    GateRule,
    Shard,
    Source,
    Swept,
)
from weir.broker.layout import MAX_REPLY_BYTES, MAX_SHARE, MAX_VISITS
from weir.model.clock import Clock, SystemClock
from weir.model.ids import MessageId, NamedCall, new_id
from weir.model.limits import MAX_BATCH, MAX_PAYLOAD_BYTES
from weir.model.lives import Life
from weir.model.logged import LoggedMessage
from weir.model.message import (
    DeadMessage,
    Delivery,
    Enqueued,
    Failure,
    LeaseRef,
    NewMessage,
    QueueState,
    Settlement,
    check_messages,
)
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import QueueSpec
from weir.telemetry.codec import MetricEvent
from weir.telemetry.events import QueueOperation
from weir.testing.memory_events import queue_event, queue_state
from weir.testing.memory_gates import MemoryGates
from weir.testing.memory_lapses import LapseHorizon
from weir.testing.memory_lives import take_logged
from weir.testing.memory_messages import MemoryMessages
from weir.testing.memory_queue import MemoryCounts, QueueModel
from weir.testing.memory_settled import SettledLeases
from weir.testing.memory_turns import MemoryTurns
from weir.testing.memory_waits import EnvironmentLogs

_T = TypeVar("_T", LeaseRef, Failure)
_Serve = Callable[[QueueModel, int], list[Delivery]]
_Step = Callable[[QueueModel, _T, int, MemoryCounts], Settlement]


class MemoryBroker(MemoryMessages):
    """A `Broker` in memory. `events`, `lives` and `logged` record what the Redis broker would append
    to its streams."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        shards: int = 4,
        max_payload: int = MAX_PAYLOAD_BYTES,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock or SystemClock()
        self._shards = shards
        self._max_payload = max_payload
        self._chance = chance
        self._queues: dict[QueueRef, QueueModel] = {}
        self._retired: dict[QueueRef, dict[str, int]] = {}
        self._settled = SettledLeases()
        self._limits: dict[EnvironmentRef, int] = {}
        self._logs: defaultdict[EnvironmentRef, EnvironmentLogs] = defaultdict(EnvironmentLogs)
        self._outboxes: list[dict[MessageId, DeadMessage]] = [{} for _ in range(shards)]
        self._gates = MemoryGates()
        self._horizons = [LapseHorizon() for _ in range(shards)]
        self._turns = MemoryTurns()
        self._touched: dict[QueueRef, int] = {}
        self._kept, self._members = defaultdict(lambda: (0, None)), defaultdict(set)
        self._changed = asyncio.Event()
        self.events: list[MetricEvent] = []
        self.lives: list[Life] = []
        self.logged: list[LoggedMessage] = []
        self._life_counts: Counter[QueueRef] = Counter()

    @property
    def shards(self) -> int:
        return self._shards

    # describing queues

    async def define(self, queue: QueueRef, spec: QueueSpec) -> None:
        checks.check_spec(spec)
        model = self._queues.get(queue)
        if model is None:
            self._queues[queue] = QueueModel(queue, spec, self._horizons[self._shard(queue.scope)])
            self._queues[queue].odometers.update(self._retired.pop(queue, {}))
        elif model.entries and model.spec.ordering is not spec.ordering:
            raise checks.ordering_kept(queue.queue)
        else:
            model.spec = spec
        self._refresh(self._queues[queue])

    async def forget(self, queue: QueueRef) -> None:
        model = self._queues.get(queue)
        if model is None:
            return
        if model.entries:
            raise checks.queue_in_use(queue.queue, len(model.entries))
        self._retired[queue] = self._queues.pop(queue).odometers
        self._turns.leave(queue)
        self._touched.pop(queue, None)

    async def limit(self, environment: EnvironmentRef, concurrency: int | None) -> None:
        checks.check_concurrency(concurrency)
        if concurrency is None:
            self._limits.pop(environment, None)
        else:
            self._limits[environment] = concurrency
        self._note(environment)
        self._turns.join(environment, servable=self._environment_servable(environment))
        self._wake()

    async def pause(self, queue: QueueRef) -> None:
        model = self._model(queue)
        model.paused = True
        self._finish_call(model, QueueOperation.PAUSE, MemoryCounts(), always=True)

    async def resume(self, queue: QueueRef) -> None:
        model = self._model(queue)
        model.paused = False
        self._finish_call(model, QueueOperation.RESUME, MemoryCounts(), always=True)

    # moving messages

    async def enqueue(
        self,
        queue: QueueRef,
        messages: Sequence[NewMessage],
        *,
        entry: Entry = GateRule.OBEY,
    ) -> list[Enqueued]:
        check_messages(messages, max_payload=self._max_payload)
        shard, now = self._shard(queue.scope), self._clock.now_ms()
        call = entry if isinstance(entry, NamedCall) else None
        if call is not None and (known := self._gates.repeated(shard, call, messages)) is not None:
            return known
        model, counts = self._model(queue), MemoryCounts()
        if isinstance(entry, ForOperations):
            answers = self._gates.put_for(
                queue,
                messages,
                entry.ids,
                put=lambda message: model.enqueue(message, now, counts),
                original_id=lambda message: model.original_id(message, now),
            )
        else:
            lapsed = call is not None and self._gates.lapsed(shard, now_ms=now)
            reserved = self._gates.reserved(queue)
            answers = [
                model.enqueue(
                    message,
                    now,
                    counts,
                    gated=entry is not GateRule.PASS and (lapsed or self._gates.closed(queue, message.key)),
                    reserved=reserved,
                )
                for message in messages
            ]
        if call is not None:
            self._gates.remember(shard, call, answers, now_ms=now)
        self._finish_call(model, QueueOperation.ENQUEUE, counts)
        return answers

    async def dequeue(
        self,
        source: Source,
        *,
        consumer: str,
        limit: int = 1,
        lease_ms: int | None = None,
        wait_ms: int = 0,
    ) -> list[Delivery]:
        checks.check_dequeue(consumer=consumer, limit=limit, lease_ms=lease_ms, wait_ms=wait_ms)
        give_up = time.monotonic() + wait_ms / 1_000
        while True:
            self._changed.clear()
            deliveries = self._take(source, consumer=consumer, limit=limit, lease_ms=lease_ms)
            left = give_up - time.monotonic()
            if deliveries or left <= 0:
                return deliveries
            await self._wait_for_change(min(left, self._next_change_s(source)))

    async def _wait_for_change(self, timeout_s: float) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), timeout=max(timeout_s, 0.001))
        except TimeoutError:
            return

    def _next_change_s(self, source: Source) -> float:
        now = self._clock.now_ms()
        times = [model.next_change_ms(now) for model in self._models(source)]
        return min((t - now for t in times if t is not None), default=60_000) / 1_000

    def _take(self, source: Source, *, consumer: str, limit: int, lease_ms: int | None) -> list[Delivery]:
        for model in self._models(source):
            self._tend(model)
        token, now, room = new_id(), self._clock.now_ms(), MAX_REPLY_BYTES

        def serve(model: QueueModel, share: int) -> list[Delivery]:
            nonlocal room
            if room <= 0:
                return []
            counts = MemoryCounts()
            deliveries = model.serve(
                limit=min(share, self._environment_room(model.ref.scope)),
                room=room,
                now=now,
                lease_ms=lease_ms,
                consumer=consumer,
                token=token,
                counts=counts,
            )
            room -= sum(len(delivery.payload) for delivery in deliveries)
            waits = tuple(delivery.wait_ms for delivery in deliveries)
            self._finish_call(model, QueueOperation.DEQUEUE, counts, samples=waits)
            return deliveries

        if isinstance(source, QueueRef):
            self._model(source).popped = True
            self._model(source).logs.asked.note(now)
            return serve(self._model(source), limit)
        if isinstance(source, EnvironmentRef):
            return self._serve_environment(source, limit, serve, visits=iter(range(MAX_VISITS)))
        return self._serve_shard(source.number, limit, serve)

    def _serve_shard(self, shard: int, limit: int, serve: _Serve) -> list[Delivery]:
        """Environments take turns; each gets its share of the call."""
        deliveries: list[Delivery] = []
        visits = iter(range(MAX_VISITS))
        while len(deliveries) < limit:
            turns = self._turns.environments()
            ready = [ref for ref in turns if self._shard(ref) == shard and self._environment_servable(ref)]
            if not ready:
                break
            environment = min(ready, key=self._turns.place)
            share = math.ceil((limit - len(deliveries)) / min(len(ready), MAX_SHARE))
            got = self._serve_environment(environment, share, serve, visits=visits)
            self._turns.take(environment)
            deliveries += got
            if next(visits, None) is None:
                break
        return deliveries

    def _serve_environment(
        self, environment: EnvironmentRef, limit: int, serve: _Serve, *, visits: Iterator[int]
    ) -> list[Delivery]:
        """Queues of one environment take turns; each gets its share of the call."""
        deliveries: list[Delivery] = []
        self._logs[environment].asked.note(self._clock.now_ms())
        while len(deliveries) < limit and self._environment_room(environment) > 0:
            ready = [model for model in self._models(environment) if model.servable]
            if not ready or next(visits, None) is None:
                break
            model = min(ready, key=lambda model: self._turns.place(model.ref))
            share = math.ceil((limit - len(deliveries)) / min(len(ready), MAX_SHARE))
            self._turns.take(model.ref)
            deliveries += serve(model, share)
        return deliveries

    async def ack(
        self, leases: Sequence[LeaseRef], *, results: Sequence[bytes | None] = ()
    ) -> list[Settlement]:
        checks.check_leases(leases)
        checks.check_results(results, leases=len(leases))
        held = [self._is_held(lease) for lease in leases]
        done = self._settle(leases, QueueOperation.ACK, lambda model, *one: model.ack(*one))
        kept = [result if one else None for one, result in zip(held, results, strict=False)]
        return self._keep_results(leases, done, kept)

    def _is_held(self, lease: LeaseRef) -> bool:
        model = self._queues.get(lease.queue)
        return model is not None and model.held(lease, self._clock.now_ms()) is not None

    async def extend(self, leases: Sequence[LeaseRef], *, lease_ms: int) -> list[Settlement]:
        checks.check_leases(leases)
        checks.check_lease(lease_ms)
        return self._settle(
            leases, QueueOperation.EXTEND, lambda model, lease, now, _: model.extend(lease, now, lease_ms)
        )

    async def nack(self, failures: Sequence[Failure]) -> list[Settlement]:
        checks.check_failures(failures)
        chances = {id(failure): self._chance() for failure in failures}
        return self._settle(
            failures,
            QueueOperation.NACK,
            lambda model, failure, now, counts: model.nack(failure, now, chances[id(failure)], counts),
        )

    async def dead_letter(self, failures: Sequence[Failure]) -> list[Settlement]:
        checks.check_failures(failures)
        return self._settle(
            failures,
            QueueOperation.DEAD_LETTER,
            lambda model, failure, now, counts: model.dead_letter(failure, now, counts),
        )

    def _settle(self, items: Sequence[_T], operation: QueueOperation, step: _Step[_T]) -> list[Settlement]:
        """Settle items of any queues, queue by queue: one step per item, one event per queue."""
        now, answers = self._clock.now_ms(), [Settlement.LAPSED] * len(items)
        places: dict[QueueRef, list[int]] = defaultdict(list)
        for at, item in enumerate(items):
            places[_lease_of(item).queue].append(at)
        for queue, found in places.items():
            counts = MemoryCounts()
            if (model := self._queues.get(queue)) is None:
                continue
            for at in found:
                answers[at] = step(model, items[at], now, counts)
            if {answers[at] for at in found} & {Settlement.DONE, Settlement.DEAD}:
                self._finish_call(model, operation, counts, always=True)
            leases = [_lease_of(items[at]) for at in found]
            told = self._settled.answer(leases, [answers[at] for at in found], operation, now=now)
            for at, answer in zip(found, told, strict=True):
                answers[at] = answer
        return answers

    # upkeep

    async def sweep(self, shard: int, *, limit: int = 1_000) -> Swept:
        checks.check_shard(shard, shards=self._shards)
        lapsed = expired = dead = 0
        for model in self._models(Shard(shard)):
            lapses, expiries = self._tend(model)
            lapsed += lapses.values["lapsed"]
            dead += lapses.values["dead"]
            expired += expiries.values["expired"]
        return Swept(lapsed=lapsed, expired=expired, dead=dead, orphans=0, more=False)

    def _tend(self, model: QueueModel) -> tuple[MemoryCounts, MemoryCounts]:
        lapses, expiries, now = MemoryCounts(), MemoryCounts(), self._clock.now_ms()
        model.bring_back(now, lapses)
        self._finish_call(model, QueueOperation.LAPSE, lapses)
        model.expire(now, expiries)
        self._finish_call(model, QueueOperation.EXPIRE, expiries)
        return lapses, expiries

    async def heartbeat(self, shard: int, *, limit: int = 1_000) -> int:
        checks.check_shard(shard, shards=self._shards)
        old = self._clock.now_ms() - HEARTBEAT_MS
        quiet = [m for m in self._models(Shard(shard)) if m.entries and self._touched.get(m.ref, 0) <= old]
        for model in quiet[:limit]:
            self._finish_call(model, QueueOperation.HEARTBEAT, MemoryCounts(), always=True)
        return len(quiet[:limit])

    async def state(self, queue: QueueRef) -> QueueState:
        return self._state(self._model(queue))

    async def states(self, environment: EnvironmentRef) -> list[QueueState]:
        return [self._state(m) for m in sorted(self._models(environment), key=lambda m: m.ref.queue)]

    async def take_dead(self, shard: int, *, limit: int = 1_000) -> list[DeadMessage]:
        checks.check_shard(shard, shards=self._shards)
        return list(self._outboxes[shard].values())[:limit]

    async def drop_dead(self, shard: int, message_ids: Sequence[MessageId]) -> None:
        checks.check_shard(shard, shards=self._shards)
        for message_id in message_ids:
            self._outboxes[shard].pop(message_id, None)

    async def close_gates(
        self, queue: QueueRef, gates: Sequence[Gated], *, within_room: bool = False
    ) -> list[int | None]:
        model, counts = self._model(queue), MemoryCounts()
        room = model.room_for(self._gates.reserved(queue)) if within_room else math.inf
        answers, refused = self._gates.close(queue, gates, room=room, now_ms=self._clock.now_ms())
        for _ in range(refused):
            model.count(counts, "refused")
        self._finish_call(model, QueueOperation.ENQUEUE, counts)
        return answers

    async def open_gates(self, queue: QueueRef, gates: Sequence[Gated]) -> None:
        self._gates.open(queue, gates)

    async def void_gates(self, queue: QueueRef, gates: Sequence[Gated]) -> list[bool]:
        return [self._gates.void(queue, gate) for gate in gates]

    async def stale_gates(
        self, shard: int, *, older_ms: int, skip: int = 0, limit: int = MAX_BATCH
    ) -> list[tuple[QueueRef, Gated]]:
        checks.check_shard(shard, shards=self._shards)
        found = self._gates.stale(before_ms=self._clock.now_ms() - older_ms)
        mine = [(queue, gate) for queue, gate in found if self._shard(queue.scope) == shard]
        return mine[skip : skip + limit]

    async def settle_call(self, queue: QueueRef, call: NamedCall) -> list[CallAnswer]:
        return self._gates.settle(self._shard(queue.scope), call, now_ms=self._clock.now_ms())

    async def idle_calls(self, shard: int, *, idle_ms: int) -> list[str]:
        checks.check_shard(shard, shards=self._shards)
        return self._gates.idle_calls(shard, before_ms=self._clock.now_ms() - idle_ms)

    async def forget_calls(self, shard: int, slots: Sequence[str], *, idle_ms: int) -> int:
        checks.check_shard(shard, shards=self._shards)
        return self._gates.forget_calls(shard, slots, before_ms=self._clock.now_ms() - idle_ms)

    async def now_ms(self, shard: int) -> int:
        checks.check_shard(shard, shards=self._shards)
        return self._clock.now_ms()

    async def allow_direct(self, shard: int, *, until_ms: int) -> None:
        checks.check_shard(shard, shards=self._shards)
        self._gates.allow(shard, until_ms=until_ms)

    async def forbid_direct(self, shard: int) -> None:
        checks.check_shard(shard, shards=self._shards)
        self._gates.forbid(shard)

    async def let_lapse(self, shard: int, *, until_ms: int) -> None:
        checks.check_shard(shard, shards=self._shards)
        self._horizons[shard].move(until_ms, now=self._clock.now_ms())
        self._wake()

    async def aclose(self) -> None:
        self._wake()

    # shared by the methods above

    def _model(self, queue: QueueRef) -> QueueModel:
        try:
            return self._queues[queue]
        except KeyError:
            raise checks.queue_unknown(queue.queue) from None

    def _models(self, source: Source) -> list[QueueModel]:
        if isinstance(source, QueueRef):
            return [self._model(source)]
        if isinstance(source, EnvironmentRef):
            return [model for ref, model in self._queues.items() if ref.scope == source]
        checks.check_shard(source.number, shards=self._shards)
        return [model for ref, model in self._queues.items() if self._shard(ref.scope) == source.number]

    def _shard(self, environment: EnvironmentRef) -> int:
        return shard_of(environment, shards=self._shards)

    def _environment_room(self, environment: EnvironmentRef) -> int:
        limit = self._limits.get(environment)
        if limit is None:
            return 1 << 30
        return max(0, limit - sum(model.running for model in self._models(environment)))

    def _environment_servable(self, environment: EnvironmentRef) -> bool:
        models = self._models(environment)
        return self._environment_room(environment) > 0 and any(model.servable for model in models)

    def _refresh(self, model: QueueModel) -> None:
        """Let a queue or environment that became servable join behind all that already wait their turn."""
        scope = model.ref.scope
        self._note(scope, model)
        joined = self._turns.join(model.ref, servable=model.servable)
        if self._turns.join(scope, servable=self._environment_servable(scope)) or joined:
            self._wake()

    def _note(self, environment: EnvironmentRef, *models: QueueModel) -> None:
        """Log what keeps the environment and these queues of it from being served from now on."""
        for model in models:
            model.note(self._clock.now_ms())
        self._logs[environment].limited.note(self._clock.now_ms(), self._environment_room(environment) == 0)

    def _wake(self) -> None:
        self._changed.set()

    def _write_down(self, model: QueueModel) -> None:
        """Note the lives of messages that ended, and the messages themselves if the queue has a log."""
        before, log_ms = self._life_counts[model.ref], model.spec.log_ms
        taken = take_logged(model.ended, self._waits(model).parts, before=before, log_ms=log_ms)
        self._life_counts[model.ref] += len(taken)
        self.lives += [one.life for one in taken]
        self.logged += taken if log_ms is not None else []

    def _finish_call(
        self,
        model: QueueModel,
        operation: QueueOperation,
        counts: MemoryCounts,
        *,
        samples: tuple[int, ...] = (),
        always: bool = False,
    ) -> None:
        """The end of every verb: take the dead out of the queue, update the turns, emit one event."""
        outbox = self._outboxes[self._shard(model.ref.scope)]
        outbox.update({dead.message_id: dead for dead in model.outbox})
        model.outbox.clear()
        self._write_down(model)
        self._refresh(model)
        if counts or always:
            self._touched[model.ref] = self._clock.now_ms()
            self.events.append(queue_event(self._state(model), operation, counts, samples=samples))
            self._wake()

    def _state(self, model: QueueModel) -> QueueState:
        limit = self._limits.get(model.ref.scope)
        siblings = self._models(model.ref.scope)
        return queue_state(model, siblings, environment_limit=limit, now_ms=self._clock.now_ms())


def _lease_of(item: LeaseRef | Failure) -> LeaseRef:
    return item if isinstance(item, LeaseRef) else item.lease
