"""Looking at messages on Redis does bounded work, whatever is in the queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis import Redis

from support.script_runs import note_runs
from weir.broker import keys, layout
from weir.broker.records import MARK
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.errors import Conflict
from weir.model.ids import new_message_id
from weir.model.inspection import MessageFilter, MessageState, Touched, WaitParts
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import QueueSpec
from weir.testing.clocks import ManualClock

MEBIBYTE = 1 << 20
SLOW_US = 15_000
"""Listing 20,000 leases in one script took 29 ms on an idle machine, a search through 2,000 bodies 20 ms."""


@pytest.fixture
async def broker(redis_url: str, manual_clock: ManualClock) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(RedisConnection(url=redis_url), clock=manual_clock)
    yield broker
    await broker.aclose()


@pytest.fixture
async def queue(broker: RedisBroker, environment: EnvironmentRef) -> QueueRef:
    queue = environment.queue("work")
    await broker.define(queue, QueueSpec(name="work"))
    return queue


def base(queue: QueueRef) -> bytes:
    return keys.prefix(shard_of(queue.scope, shards=4)) + b"q:" + keys.queue_ident(queue)


async def put(broker: RedisBroker, queue: QueueRef, count: int, **fields: Any) -> list[NewMessage]:
    sent = [NewMessage(**{"payload": b"x", **fields}) for _ in range(count)]
    for at in range(0, count, 1_000):
        await broker.enqueue(queue, sent[at : at + 1_000])
    return sent


async def test_a_search_stops_after_many_messages_and_goes_on(broker: RedisBroker, queue: QueueRef) -> None:
    await put(broker, queue, 2_500)
    (needle,) = await put(broker, queue, 1, payload=b"a needle")
    match = MessageFilter(text=b"needle")
    page = await broker.list_messages(queue, MessageState.READY, match=match)
    assert (page.messages, page.scanned) == ((), 2_000)
    page = await broker.list_messages(queue, MessageState.READY, match=match, cursor=page.cursor)
    assert ([one.message_id for one in page.messages], page.scanned, page.cursor) == ([needle.id], 501, None)


async def test_no_script_takes_long_however_much_there_is_to_look_at(
    broker: RedisBroker, queue: QueueRef, redis_url: str
) -> None:
    """In one script a list of so many leases, or a search through all of these, took 50 ms and more."""
    leased = await put(broker, queue, 20_000)
    for _ in range(20):
        await broker.dequeue(queue, consumer="c", limit=1_000)
    await put(broker, queue, 6_000, payload=b"x" * 500, headers={"a": "b"})
    await put(broker, queue, 6_000, delay_ms=60_000)
    with Redis.from_url(redis_url) as redis:
        before = redis.config_get("slowlog-log-slower-than")["slowlog-log-slower-than"]
        redis.config_set("slowlog-log-slower-than", SLOW_US)
        redis.config_set("slowlog-max-len", 10_000)
        redis.slowlog_reset()
        before_calls = scripts_run(redis)
        try:
            ids = await walk(broker, queue, MessageState.LEASED, limit=200)
            assert ids == sorted(one.id for one in leased)
            for match in (MessageFilter(text=b"needle"), MessageFilter(header=("a", "c"))):
                assert await walk(broker, queue, MessageState.READY, match=match) == []
                assert await walk(broker, queue, MessageState.LEASED, match=match, most=20) == []
            assert await walk(broker, queue, MessageState.RETRYING) == []
            slow = [one for one in redis.slowlog_get(10_000) if one["command"].startswith(b"EVALSHA")]
            calls = scripts_run(redis) - before_calls
        finally:
            redis.config_set("slowlog-log-slower-than", before)
    # Work that is always too much makes every call slow; a busy machine delays a few.
    assert len(slow) <= calls / 50, [one["duration"] for one in slow]


def scripts_run(redis: Redis) -> int:
    return int(redis.info("commandstats")["cmdstat_evalsha"]["calls"])


async def walk(
    broker: RedisBroker, queue: QueueRef, state: MessageState, *, most: int = 1_000, **asked: Any
) -> list[str]:
    """The ids of all pages, or of so many at most."""
    found: list[str] = []
    cursor = None
    for _ in range(most):
        page = await broker.list_messages(queue, state, cursor=cursor, **asked)
        found += [one.message_id for one in page.messages]
        cursor = page.cursor
        if cursor is None:
            break
    return found


async def test_large_payloads_make_short_pages(broker: RedisBroker, queue: QueueRef) -> None:
    sent = [one.id for _ in range(18) for one in await put(broker, queue, 1, payload=b"x" * MEBIBYTE)]
    page = await broker.list_messages(queue, MessageState.READY)
    assert len(page.messages) == 16
    found = list(page.messages)
    while page.cursor is not None:
        page = await broker.list_messages(queue, MessageState.READY, cursor=page.cursor)
        found += page.messages
    assert [one.message_id for one in found] == sent
    assert {one.payload_bytes for one in found} == {MEBIBYTE}


async def test_large_messages_are_moved_and_cancelled_in_several_steps(
    broker: RedisBroker, queue: QueueRef, redis_url: str
) -> None:
    sent = [one.id for _ in range(20) for one in await put(broker, queue, 1, payload=b"x" * MEBIBYTE)]
    assert await broker.reschedule(queue, sent, delay_ms=1_000) == [Touched.DONE] * 20
    assert await broker.run_now(queue, sent) == [Touched.DONE] * 20
    assert await broker.cancel(queue, sent) == [Touched.DONE] * 20
    state = await broker.state(queue)
    assert (state.depth, state.odometers["cancelled"]) == (0, 20)
    with Redis.from_url(redis_url) as redis:
        assert redis.exists(*(base(queue) + part for part in (b":bodies", b":places", b":ready"))) == 0


async def test_many_messages_are_cancelled_in_several_steps(
    broker: RedisBroker, queue: QueueRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [message.id for message in await put(broker, queue, 600)]
    runs = note_runs(broker, monkeypatch)
    assert await broker.cancel(queue, [*ids, new_message_id()]) == [Touched.DONE] * 600 + [Touched.GONE]
    assert runs == ["cancel"] * 3
    assert (await broker.state(queue)).depth == 0


async def test_too_many_leases_are_not_listed(broker: RedisBroker, queue: QueueRef, redis_url: str) -> None:
    with Redis.from_url(redis_url) as redis:
        redis.hset(base(queue) + b":leases", mapping={str(number): b"" for number in range(100_001)})
        with pytest.raises(Conflict, match="100001 messages of `work` are leased"):
            await broker.list_messages(queue, MessageState.LEASED)
        redis.delete(base(queue) + b":leases")


async def test_retries_that_an_older_program_left_in_masses_are_not_counted(
    broker: RedisBroker, queue: QueueRef, redis_url: str, manual_clock: ManualClock
) -> None:
    """Until no message waits for its time any more; from then on the number is known."""
    await put(broker, queue, 10_001, delay_ms=1_000)
    with Redis.from_url(redis_url) as redis:
        state: Any = redis.hget(base(queue), "state")
        older = bytes([MARK + 2]) + state[1 : 1 + layout.STATE.sizes()[2]]
        redis.hset(base(queue), "state", older)
    for _ in range(2):
        counts = await broker.count_messages(queue)
        assert (counts.delayed, counts.scheduled, counts.retrying) == (10_001, None, None)
        await broker.resume(queue)
    manual_clock.advance(1_000)
    shard = shard_of(queue.scope, shards=4)
    while (await broker.sweep(shard)).more:
        pass
    counts = await broker.count_messages(queue)
    assert (counts.ready, counts.delayed, counts.scheduled, counts.retrying) == (10_001, 0, 0, 0)


async def test_what_is_older_than_the_last_changes_of_a_queue_is_unknown(
    broker: RedisBroker, queue: QueueRef, manual_clock: ManualClock
) -> None:
    """A message came due, and the queue changed often before anybody noticed."""
    (sent,) = await put(broker, queue, 1, delay_ms=100)
    manual_clock.advance(100)
    for _ in range(12):
        manual_clock.advance(10)
        await broker.pause(queue)
        manual_clock.advance(10)
        await broker.resume(queue)
    manual_clock.advance(5)
    why = await broker.why(queue, sent.id)
    assert why is not None
    known = WaitParts(scheduled_ms=100, unknown_ms=90, paused_ms=80, unasked_ms=75)
    assert why.parts.total_ms == 345
    assert why.parts == known


async def test_a_revoked_lease_is_forgotten_when_its_time_is_over(
    broker: RedisBroker, queue: QueueRef, redis_url: str, manual_clock: ManualClock
) -> None:
    await put(broker, queue, 1)
    (delivery,) = await broker.dequeue(queue, consumer="c", limit=1, lease_ms=1_000)
    await broker.cancel(queue, [delivery.message_id])
    with Redis.from_url(redis_url) as redis:
        assert redis.zcard(base(queue) + b":revoked") == 1
        manual_clock.advance(1_001)
        await broker.sweep(shard_of(queue.scope, shards=broker.shards))
        assert redis.exists(base(queue) + b":revoked") == 0
