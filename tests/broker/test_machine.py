"""The memory broker and the Redis broker side by side: the same calls in any order answer the same.

Replies get lost on the way back from Redis, leases lapse and the clock steps both ways.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from support.indexes import check_indexes
from support.lives import lives_of, logged_of
from support.redis_cluster import RunningCluster
from support.streams import event_bytes
from weir.broker import keys
from weir.broker.blocking import BlockingBroker
from weir.broker.broker import Entry, ForOperations, Gated, GateRule
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.ids import MessageId, NamedCall, new_message_id
from weir.model.inspection import MessageFilter, MessageState, WaitParts
from weir.model.lives import Life
from weir.model.message import Delivery, Failure, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy, Ordering, QueueSpec, Retention
from weir.telemetry.codec import MetricEvent, unpack
from weir.telemetry.events import LIFE, LOG, QUEUE, EventKind, QueueOperation
from weir.telemetry.streams import stream_key
from weir.testing.clocks import ManualClock
from weir.testing.memory import MemoryBroker

SPECS = {
    "plain": QueueSpec(
        name="plain",
        delivery=DeliveryPolicy(max_attempts=3, lease_ms=5_000, initial_backoff_ms=500, jitter=0.5),
        retention=Retention(max_age_ms=60_000, max_depth=12),
        idempotency_window_ms=10_000,
        log_ms=60_000,
    ),
    "fifo": QueueSpec(
        name="fifo",
        ordering=Ordering.FIFO,
        delivery=DeliveryPolicy(max_attempts=2, lease_ms=3_000, initial_backoff_ms=1_000),
        message_ttl_ms=30_000,
        concurrency=2,
        log_ms=60_000,
    ),
    "keyed": QueueSpec(
        name="keyed",
        ordering=Ordering.PER_KEY,
        delivery=DeliveryPolicy(max_attempts=4, lease_ms=4_000, initial_backoff_ms=0),
        concurrency=3,
    ),
}
KEYS = st.sampled_from([None, "a", "b:{}", "🦫"])


class LossyClient:
    """Passes calls on; when told to, it loses the reply of the next one after it ran."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.lose = 0

    async def execute_command(self, *args: Any) -> Any:
        reply = await self._inner.execute_command(*args)
        if self.lose and args[0] in ("EVALSHA", "EVAL"):
            self.lose -= 1
            raise RedisConnectionError("the reply was lost")
        return reply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Brokers(RuleBasedStateMachine):
    """Drives both brokers; every rule compares their answers."""

    url = ""
    kind: type[RedisBroker] = RedisBroker
    leases = Bundle("leases")

    @initialize(steps_back=st.booleans())
    def begin(self, steps_back: bool) -> None:
        self.steps_back = steps_back
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        tag = uuid4().hex
        self.environment = EnvironmentRef(organization=f"o{tag}", project="p", environment="e")
        seed = random.randrange(1 << 30)
        self.model = MemoryBroker(clock=self.clock, chance=random.Random(seed).random)
        self.redis = self.kind(
            RedisConnection(url=self.url), clock=self.clock, chance=random.Random(seed).random
        )
        self.lossy = LossyClient(self.redis._runner.client)
        self.redis._runner.client = self.lossy  # type: ignore[assignment]
        self.shard = shard_of(self.environment, shards=4)
        self.stream_start = self.run(self._last_event("queue"))
        self.lives_start = self.run(self._last_event("life"))
        self.log_start = self.run(self._last_event("log"))
        for name, spec in SPECS.items():
            self.both("define", self.environment.queue(name), spec)

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def both(self, verb: str, *args: Any, **options: Any) -> tuple[Any, Any]:
        """The answers of both; an error must be the same error."""
        answers = []
        for broker in (self.model, self.redis):
            try:
                answers.append(self.run(getattr(broker, verb)(*args, **options)))
            except Exception as error:
                answers.append(type(error))
        return answers[0], answers[1]

    def same(self, verb: str, *args: Any, **options: Any) -> Any:
        model, redis = self.both(verb, *args, **options)
        assert model == redis, (verb, model, redis)
        return model

    def queue(self, name: str) -> QueueRef:
        return self.environment.queue(name)

    async def _last_event(self, metric: str) -> str:
        found = await self.redis._runner.client.execute_command(
            "XREVRANGE", stream_key(metric, shard_of(self.environment, shards=4)), "+", "-", "COUNT", 1
        )
        return found[0][0].decode() if found else "0-0"

    # rules

    @rule(
        name=st.sampled_from([*SPECS, "unknown"]),
        items=st.lists(
            st.tuples(
                KEYS,
                st.none() | st.integers(0, 9),
                st.sampled_from([None, 0, 700, 20_000]),
                st.sampled_from([None, 1, 2_500, 90_000]),
                st.sampled_from([None, None, "i1", "i2"]),
                st.sampled_from([b"", b"x", b"y"]),
            ),
            min_size=1,
            max_size=5,
        ),
        lost=st.booleans(),
        how=st.sampled_from(["direct", "direct", "through", "call", "operations"]),
    )
    def enqueue(self, name: str, items: list[Any], lost: bool, how: str) -> None:
        self.lossy.lose = int(lost)
        messages = [
            NewMessage(
                payload=payload,
                key=key,
                priority=priority,
                **due_in(delay, self.clock.now_ms(), as_delay=priority == 9),
                ttl_ms=ttl,
                idempotency_key=idempotency,
            )
            for key, priority, delay, ttl, idempotency, payload in items
        ]
        entries: dict[str, Entry] = {
            "direct": GateRule.OBEY,
            "through": GateRule.PASS,
            "call": NamedCall(slot="slot" + uuid4().hex, id="1"),
            "operations": ForOperations(ids=[self.named(f"op{n % 2}") for n in range(len(messages))]),
        }
        self.same("enqueue", self.queue(name), messages, entry=entries[how])
        if how in ("call", "operations"):
            self.same("enqueue", self.queue(name), messages, entry=entries[how])
        self.lossy.lose = 0

    @rule(
        name=st.sampled_from(["plain", "plain", *SPECS, "unknown"]),
        lost=st.booleans(),
        again=st.sampled_from(["no", "the call", "the message"]),
    )
    def enqueue_plain(self, name: str, lost: bool, again: str) -> None:
        """One message with nothing but a payload, as a named call: the short way, wherever it will do."""
        self.redis._unusual_until.clear()
        self.lossy.lose = int(lost)
        message, slot = NewMessage(payload=b"x"), "slot" + uuid4().hex
        self.same("enqueue", self.queue(name), [message], entry=NamedCall(slot=slot, id="1"))
        if again != "no":
            number = "1" if again == "the call" else "2"
            self.same("enqueue", self.queue(name), [message], entry=NamedCall(slot=slot, id=number))
        self.lossy.lose = 0

    @rule(
        target=leases,
        source=st.sampled_from([*SPECS, "environment"]),
        limit=st.integers(1, 6),
        lease_ms=st.sampled_from([None, 100, 9_000]),
        lost=st.booleans(),
    )
    def dequeue(self, source: str, limit: int, lease_ms: int | None, lost: bool) -> Any:
        self.lossy.lose = 2 * int(lost)
        where = self.environment if source == "environment" else self.queue(source)
        model, redis = self.both("dequeue", where, consumer="c", limit=limit, lease_ms=lease_ms)
        self.lossy.lose = 0
        assert [untokened(d) for d in model] == [untokened(d) for d in redis]
        return multiple(*zip(model, redis, strict=True))

    def settle(self, verb: str, pairs: list[Any], lost: bool, make: Any, **options: Any) -> None:
        self.lossy.lose = int(lost)
        model = self.run(getattr(self.model, verb)([make(pair[0]) for pair in pairs], **options))
        redis = self.run(getattr(self.redis, verb)([make(pair[1]) for pair in pairs], **options))
        self.lossy.lose = 0
        assert model == redis, (verb, model, redis)

    @rule(pairs=st.lists(consumes(leases), min_size=1, max_size=4), lost=st.booleans())
    def ack(self, pairs: list[Any], lost: bool) -> None:
        self.settle("ack", pairs, lost, lambda d: d.lease)

    @rule(pair=leases)
    def ack_and_ack_again(self, pair: Any) -> None:
        self.settle("ack", [pair, pair], True, lambda d: d.lease)

    @rule(
        pairs=st.lists(leases, min_size=1, max_size=3),
        delay_ms=st.sampled_from([None, None, 0, 1_500]),
        error=st.sampled_from(["", "boom", "x" * 20_000]),
        lost=st.booleans(),
        uncounted=st.sampled_from([False, False, True]),
    )
    def nack(self, pairs: list[Any], delay_ms: int | None, error: str, lost: bool, uncounted: bool) -> None:
        # Back-off chances are drawn in the order of the call, so leases of one queue only.
        pairs = [pair for pair in pairs if pair[0].queue == pairs[0][0].queue]
        self.settle(
            "nack",
            pairs,
            lost,
            lambda d: Failure(lease=d.lease, error=error, delay_ms=delay_ms, uncounted=uncounted),
        )

    @rule(pairs=st.lists(leases, min_size=1, max_size=2), lost=st.booleans())
    def dead_letter(self, pairs: list[Any], lost: bool) -> None:
        self.settle("dead_letter", pairs, lost, lambda d: Failure(lease=d.lease, error="bad"))

    @rule(pairs=st.lists(leases, min_size=1, max_size=3), lease_ms=st.sampled_from([1, 2_000, 20_000]))
    def extend(self, pairs: list[Any], lease_ms: int) -> None:
        self.settle("extend", pairs, True, lambda d: d.lease, lease_ms=lease_ms)

    @rule(ms=st.sampled_from([1, 99, 500, 1_000, 2_999, 5_000, 31_000, 61_000, -700, -3_600_000]))
    def step_the_clock(self, ms: int) -> None:
        if ms > 0 or self.steps_back:
            self.clock.advance(ms)

    @rule(name=st.sampled_from([*SPECS, "unknown"]), verb=st.sampled_from(["pause", "resume"]))
    def pause_or_resume(self, name: str, verb: str) -> None:
        self.same(verb, self.queue(name))

    @rule(limit=st.sampled_from([None, 1, 3, 100]))
    def limit(self, limit: int | None) -> None:
        self.same("limit", self.environment, limit)

    @rule(
        limit=st.sampled_from([None, 1, 5]),
        max_age=st.sampled_from([2_000, 60_000]),
        priority=st.sampled_from([0, 4, 9]),
    )
    def define(self, limit: int | None, max_age: int, priority: int) -> None:
        spec = replace(
            SPECS["plain"],
            concurrency=limit,
            retention=Retention(max_age_ms=max_age, max_depth=12),
            priority=priority,
        )
        self.same("define", self.queue("plain"), spec)
        self.same("define", self.queue("plain"), replace(spec, ordering=Ordering.UNORDERED))

    @rule(name=st.sampled_from(list(SPECS)))
    def forget_and_define(self, name: str) -> None:
        self.same("forget", self.queue(name))
        self.same("define", self.queue(name), SPECS[name])

    @rule(
        key=KEYS,
        operation=st.sampled_from(["op0", "op1"]),
        messages=st.sampled_from([0, 1, 3, 20]),
        within_room=st.booleans(),
        lost=st.booleans(),
    )
    def close_gate(
        self, key: str | None, operation: str, messages: int, within_room: bool, lost: bool
    ) -> None:
        self.lossy.lose = int(lost)
        gates = [Gated(key=key, operation=self.named(operation), messages=messages)]
        self.same("close_gates", self.queue("plain"), gates, within_room=within_room)
        self.lossy.lose = 0

    @rule(
        key=KEYS,
        operation=st.sampled_from(["op0", "op1"]),
        verb=st.sampled_from(["open_gates", "open_gates", "void_gates"]),
    )
    def leave_gate(self, key: str | None, operation: str, verb: str) -> None:
        self.same(verb, self.queue("plain"), [Gated(key=key, operation=self.named(operation))])

    def named(self, operation: str) -> str:
        """Void operations are remembered for the whole shard, which other examples share."""
        return f"{self.environment.organization}/{operation}"

    # looking and touching

    def some_ids(self, name: str, picks: list[int]) -> list[MessageId]:
        """Messages that are in the queue now, and one that never was."""
        known = sorted(self.model._queues[self.queue(name)].entries) or [str(uuid4())]
        return [MessageId(known[pick % len(known)]) if pick else new_message_id() for pick in picks]

    @rule(
        name=st.sampled_from(list(SPECS)),
        picks=st.lists(st.integers(0, 12), min_size=1, max_size=4),
        lost=st.booleans(),
    )
    def cancel(self, name: str, picks: list[int], lost: bool) -> None:
        self.lossy.lose = int(lost)
        self.same("cancel", self.queue(name), self.some_ids(name, picks))
        self.lossy.lose = 0

    @rule(
        name=st.sampled_from(list(SPECS)),
        picks=st.lists(st.integers(0, 12), min_size=1, max_size=4),
        lost=st.booleans(),
    )
    def run_now(self, name: str, picks: list[int], lost: bool) -> None:
        self.lossy.lose = int(lost)
        self.same("run_now", self.queue(name), self.some_ids(name, picks))
        self.lossy.lose = 0

    @rule(
        name=st.sampled_from(list(SPECS)),
        picks=st.lists(st.integers(0, 12), min_size=1, max_size=4),
        delay_ms=st.sampled_from([-5_000, 0, 700, 20_000]),
        as_delay=st.booleans(),
        lost=st.booleans(),
    )
    def reschedule(self, name: str, picks: list[int], delay_ms: int, as_delay: bool, lost: bool) -> None:
        self.lossy.lose = int(lost)
        due = {"delay_ms": max(0, delay_ms)} if as_delay else {"at_ms": self.clock.now_ms() + delay_ms}
        self.same("reschedule", self.queue(name), self.some_ids(name, picks), **due)
        self.lossy.lose = 0

    @rule(
        name=st.sampled_from(list(SPECS)),
        picks=st.lists(st.integers(0, 12), min_size=1, max_size=4),
        priority=st.integers(0, 9),
        lost=st.booleans(),
    )
    def change_priority(self, name: str, picks: list[int], priority: int, lost: bool) -> None:
        self.lossy.lose = int(lost)
        self.same("change_priority", self.queue(name), self.some_ids(name, picks), priority)
        self.lossy.lose = 0

    @rule(pairs=st.lists(leases, min_size=1, max_size=4))
    def ask_whether_leases_were_revoked(self, pairs: list[Any]) -> None:
        model, redis = ([pair[at].lease for pair in pairs] for at in (0, 1))
        assert self.run(self.model.revoked(model)) == self.run(self.redis.revoked(redis))

    @rule(name=st.sampled_from(list(SPECS)))
    def show(self, name: str) -> None:
        for message_id in list(self.model._queues[self.queue(name)].entries):
            self.same("show_message", self.queue(name), message_id)
            assert self.same("find_message", self.environment, message_id) == self.queue(name)
        self.same("find_idempotency_key", self.queue(name), "i1")

    @rule(name=st.sampled_from(list(SPECS)))
    def ask_why(self, name: str) -> None:
        """What a full log says is what the clocks say, or they say that they do not know."""
        for message_id in list(self.model._queues[self.queue(name)].entries):
            model, redis = self.both("why", self.queue(name), message_id)
            if self.steps_back:
                continue
            parts = (asdict(model.parts), asdict(redis.parts))
            assert replace(model, parts=WaitParts()) == replace(redis, parts=WaitParts())
            assert model.parts.total_ms == redis.parts.total_ms, parts
            if redis.parts.unknown_ms == 0:
                assert parts[0] == parts[1]
            else:
                assert all(parts[1][part] <= parts[0][part] for part in parts[0] if part != "unknown_ms")

    @rule(
        name=st.sampled_from(list(SPECS)),
        state=st.sampled_from(list(MessageState)),
        limit=st.integers(1, 5),
        key=KEYS,
    )
    def walk(self, name: str, state: MessageState, limit: int, key: str | None) -> None:
        """Page by page, with cursors of their own."""
        cursors: list[str | None] = [None, None]
        while True:
            pages = [
                self.run(
                    broker.list_messages(
                        self.queue(name), state, match=MessageFilter(key=key), cursor=cursor, limit=limit
                    )
                )
                for broker, cursor in zip((self.model, self.redis), cursors, strict=True)
            ]
            assert pages[0].messages == pages[1].messages
            cursors = [page.cursor for page in pages]
            if None in cursors:
                assert cursors == [None, None]
                break

    @rule()
    def sweep(self) -> None:
        # The shard of the shared server also holds other tenants, so only what is ours is compared.
        self.both("sweep", self.shard)

    @rule()
    def drop_half_of_the_dead(self) -> None:
        mine = [dead.message_id for dead in self.dead(self.redis)]
        self.same("drop_dead", self.shard, mine[::2])

    def dead(self, broker: Any) -> list[Any]:
        found = self.run(broker.take_dead(self.shard, limit=1_000))
        return sorted(
            (one for one in found if one.queue.scope == self.environment), key=lambda one: one.message_id
        )

    # what always holds

    @invariant()
    def states_agree_and_balance(self) -> None:
        if not hasattr(self, "model"):
            return
        model, redis = self.both("states", self.environment)
        assert model == redis, [pair for pair in zip(model, redis, strict=True) if pair[0] != pair[1]]
        for state in model:
            total = state.odometers
            left = total["enqueued"] - total["acked"] - total["dead"] - total["expired"] - total["cancelled"]
            assert state.depth + state.running == left
            self.same("count_messages", state.queue)

    @invariant()
    def outboxes_agree(self) -> None:
        if hasattr(self, "model"):
            assert self.dead(self.model) == self.dead(self.redis)

    @invariant()
    def indexes_hold(self) -> None:
        if hasattr(self, "model"):
            for name in SPECS:
                self.run(check_indexes(self.lossy.execute_command, self.queue(name), shards=4))

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        try:
            for name in SPECS:
                self.ask_why(name)
            self.compare_events()
            self.compare_lives()
            self.compare_logs()
        finally:
            self.run(self.leave_no_timers())
            self.run(self.redis.aclose())
            self.loop.close()

    async def leave_no_timers(self) -> None:
        """A call tends to few of the queues that are due in its shard, and those of the next example are
        compared: none of this one may stand before them."""
        idents = [keys.queue_ident(self.queue(name)) for name in SPECS]
        await self.lossy.execute_command("ZREM", keys.shard_key(self.shard, "timers"), *idents)

    def emitted(self, kind: EventKind, *, after: str) -> list[MetricEvent]:
        """The events of our own queues that Redis emitted."""
        entries = self.run(
            self.redis._runner.client.execute_command(
                "XRANGE", stream_key(kind.name, self.shard), f"({after}", "+"
            )
        )
        events = [unpack(kind, event_bytes(fields)) for _, fields in entries]
        return [e for e in events if e.dimensions[0] == self.environment.organization]

    def compare_lives(self) -> None:
        """Every message that ended has the life that the model says, and the odometer counts them."""
        events = self.emitted(LIFE, after=self.lives_start)
        totals: dict[tuple[str, ...], int] = {}
        for event in events:
            totals[event.dimensions] = totals.get(event.dimensions, 0) + event.values["lives"]
            assert event.values["lives_total"] == totals[event.dimensions]
        ours = sorted((life for event in events for life in lives_of(event)), key=life_key)
        theirs = sorted(self.model.lives, key=life_key)
        assert [life.message_id for life in ours] == [life.message_id for life in theirs]
        for redis, model in zip(ours, theirs, strict=True):
            self.compare_life(redis, model)

    def compare_logs(self) -> None:
        """Every message that ended in a queue with a log is in it, as the model says, beside its life."""
        lives = [life for event in self.emitted(LIFE, after=self.lives_start) for life in lives_of(event)]
        ours = [one for event in self.emitted(LOG, after=self.log_start) for one in logged_of(event)]
        kept = [life for life in lives if SPECS[life.queue.queue].log_ms is not None]
        assert [one.life for one in ours] == kept
        carried = [(one.life.message_id, one.payload, one.headers, one.idempotency_key) for one in ours]
        theirs = [
            (one.life.message_id, one.payload, one.headers, one.idempotency_key) for one in self.model.logged
        ]
        assert sorted(carried, key=itemgetter(0, 1)) == sorted(theirs, key=itemgetter(0, 1))
        for name in SPECS:
            numbers = [one.number for one in ours if one.life.queue == self.queue(name)]
            assert numbers == list(range(1, len(numbers) + 1))

    def compare_life(self, redis: Life, model: Life) -> None:
        if redis.blocked_by_id != model.blocked_by_id:
            # Of heads that ended in the same call, either may be named.
            ends = {life.message_id: life.ended_at_ms for life in self.model.lives}
            assert ends[redis.blocked_by_id] == ends[model.blocked_by_id], (redis, model)
        if self.steps_back:
            hidden: dict[str, Any] = {"parts": WaitParts(), "leased_ms": 0, "blocked_by_id": None}
            assert replace(redis, **hidden) == replace(model, **hidden)
            return
        plain = {"parts": WaitParts(), "blocked_by_id": None}
        assert replace(redis, **plain) == replace(model, **plain)
        parts = asdict(model.parts), asdict(redis.parts)
        assert model.parts.total_ms == redis.parts.total_ms, (redis, model)
        if redis.parts.unknown_ms == 0:
            assert parts[0] == parts[1], (redis, model)
        else:
            assert all(parts[1][part] <= parts[0][part] for part in parts[0] if part != "unknown_ms")

    def compare_events(self) -> None:
        """What Redis emitted is what the model says should have been emitted."""
        mine = self.emitted(QUEUE, after=self.stream_start)
        ours, theirs = comparable(mine), comparable(self.model.events)
        assert ours == theirs, [pair for pair in zip_longest(ours, theirs) if pair[0] != pair[1]][:2]


def due_in(delay_ms: int | None, now_ms: int, *, as_delay: bool) -> dict[str, int]:
    """A message's own time, as a delay or as a time of day."""
    if delay_ms is None:
        return {}
    return {"delay_ms": delay_ms} if as_delay else {"deliver_at_ms": now_ms + delay_ms}


def life_key(life: Life) -> tuple[int, str]:
    return life.ended_at_ms, life.message_id


OF_TIME = tuple(list(QueueOperation).index(one) for one in (QueueOperation.LAPSE, QueueOperation.EXPIRE))
OF_THE_ENVIRONMENT = ("environment_length", "environment_running")


def comparable(events: list[Any]) -> list[tuple[Any, ...]]:
    """All that events say, in one order. Queues whose time has come may be taken in any order, so what their
    environment still holds in between is nobody's promise."""
    keys = []
    for of_time, run in groupby(events, key=lambda event: event.values["operation"] in OF_TIME):
        together = list(run)
        hidden = OF_THE_ENVIRONMENT if of_time and len({e.dimensions for e in together}) > 1 else ()
        keys += [event_key(event, hidden=hidden) for event in together]
    return sorted(keys)


def event_key(event: Any, *, hidden: Sequence[str]) -> tuple[Any, ...]:
    said = tuple(sorted((name, value) for name, value in event.values.items() if name not in hidden))
    return event.dimensions, said, tuple(sorted(event.samples))


def untokened(delivery: Delivery) -> Delivery:
    without = msgspec.structs.replace(delivery.lease, token="")
    return msgspec.structs.replace(delivery, lease=without)


@pytest.fixture
def machine(redis_url: str) -> type[Brokers]:
    Brokers.url = redis_url
    return Brokers


CHECKS = [
    HealthCheck.too_slow,
    HealthCheck.filter_too_much,
    HealthCheck.function_scoped_fixture,
    HealthCheck.data_too_large,
]


def test_messages_of_one_key_that_expire_together_name_each_other_alike(machine: type[Brokers]) -> None:
    brokers = machine()
    brokers.begin(steps_back=False)
    plain = (None, None, None, None, None, b"x")
    brokers.enqueue(name="fifo", items=[plain] * 5, lost=False, how="direct")
    brokers.step_the_clock(ms=31_000)
    brokers.sweep()
    lives = sorted(brokers.model.lives, key=lambda life: life.message_id)
    assert [life.blocked_by_id for life in lives] == [None, *(life.message_id for life in lives[:-1])]
    brokers.teardown()


def test_memory_and_redis_answer_alike(machine: type[Brokers]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=10, stateful_step_count=40, deadline=None, suppress_health_check=CHECKS
        ),
    )


def test_memory_and_a_broker_that_blocks_answer_alike(machine: type[Brokers]) -> None:
    class OfDirectMode(machine):  # type: ignore[misc, valid-type]
        kind = BlockingBroker

    run_state_machine_as_test(
        OfDirectMode,
        settings=settings(
            max_examples=10, stateful_step_count=40, deadline=None, suppress_health_check=CHECKS
        ),
    )


def test_memory_and_a_cluster_answer_alike(machine: type[Brokers], redis_cluster: RunningCluster) -> None:
    machine.url = redis_cluster.url
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=4, stateful_step_count=40, deadline=None, suppress_health_check=CHECKS
        ),
    )


@pytest.mark.slow
def test_memory_and_redis_answer_alike_for_long(machine: type[Brokers]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=400, stateful_step_count=60, deadline=None, suppress_health_check=CHECKS
        ),
    )
