"""No call holds Redis for long, however large the messages are and however many of them ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis import Redis

from weir.broker import keys, layout
from weir.broker.broker import Shard
from weir.broker.failures import ScriptFailed
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.inspection import MessageState
from weir.model.limits import MAX_BATCH, MAX_LEASE_MS
from weir.model.message import Failure, LeaseRef, NewMessage, Settlement
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy, Ordering, QueueSpec, Retention
from weir.testing.clocks import ManualClock

MEBIBYTE = 1 << 20
REPLY_BODIES = 16
"""So many bodies of nearly 1 MiB a reply holds at most."""
CARRIED = 5
"""So many deaths of 1 MiB are taken at once: 4 MiB, and the one that was more than that."""
DEATHS = 9
"""So many bodies of 1 MiB one script buries at most: 8 MiB, and the one that was more than that."""


@pytest.fixture
async def broker(redis_url: str, manual_clock: ManualClock) -> AsyncIterator[RedisBroker]:
    # With so many shards, no other test has queues in the same one.
    broker = RedisBroker(RedisConnection(url=redis_url, timeout_s=20), shards=4_096, clock=manual_clock)
    yield broker
    await broker.aclose()


@pytest.fixture
def queue(environment: EnvironmentRef) -> QueueRef:
    return environment.queue("work")


def spec(name: str = "work", **fields: Any) -> QueueSpec:
    return QueueSpec(name=name, **{"delivery": DeliveryPolicy(max_attempts=1, lease_ms=1_000), **fields})


async def put_large(broker: RedisBroker, queue: QueueRef, count: int, **fields: Any) -> None:
    for _ in range(count):
        await broker.enqueue(queue, [NewMessage(payload=bytes(MEBIBYTE), **fields)])


@contextmanager
def noted_commands(url: str) -> Iterator[list[list[str]]]:
    """A list that holds, after the block, the commands that ran on Redis in it, those of scripts too."""
    commands: list[list[str]] = []
    with Redis.from_url(url) as redis, redis.monitor() as monitor:
        yield commands
        redis.ping()
        while (words := words_of(monitor.connection.read_response()))[0] != "PING":
            commands.append(words)


def words_of(line: bytes) -> list[str]:
    """The words of a command that MONITOR shows, between quotes."""
    return line.decode().partition('] "')[2][:-1].split('" "')


def bodies_read(commands: list[list[str]]) -> list[int]:
    """How many bodies each command read."""
    return [
        len(ids)
        for name, *words in commands
        if name in ("HMGET", "HGET")
        for key, ids in [(words[0], words[1:])]
        if key.endswith(":bodies")
    ]


async def test_a_pop_reads_no_more_bodies_than_its_reply_holds(
    broker: RedisBroker, queue: QueueRef, redis_url: str
) -> None:
    await broker.define(queue, spec())
    await put_large(broker, queue, 40)
    with noted_commands(redis_url) as commands:
        got = await broker.dequeue(queue, consumer="c", limit=1_000)
    assert sum(bodies_read(commands)) <= REPLY_BODIES
    assert 8 <= len(got) <= REPLY_BODIES
    assert (await broker.state(queue)).running == len(got)


async def test_a_pop_of_an_environment_holds_no_more_than_one_reply(
    broker: RedisBroker, environment: EnvironmentRef, redis_url: str
) -> None:
    queues = [environment.queue(name) for name in "abcd"]
    for queue in queues:
        await broker.define(queue, spec(queue.queue))
        await put_large(broker, queue, 10)
    for source in (environment, Shard(shard_of(environment, shards=broker.shards))):
        with noted_commands(redis_url) as commands:
            got = await broker.dequeue(source, consumer="c", limit=1_000)
        assert sum(bodies_read(commands)) <= REPLY_BODIES + 1
        assert 8 <= len(got) <= REPLY_BODIES + 1
    left = sum([(await broker.state(queue)).depth for queue in queues])
    while left:
        left -= len(await broker.dequeue(environment, consumer="c", limit=1_000))


async def test_small_messages_are_read_at_once_also_after_large_ones(
    broker: RedisBroker, queue: QueueRef, redis_url: str
) -> None:
    await broker.define(queue, spec())
    await put_large(broker, queue, 1)
    small = [NewMessage(payload=b"x") for _ in range(900)]
    await broker.enqueue(queue, small)
    got = await broker.dequeue(queue, consumer="c", limit=1_000)
    assert len(got) == 901
    await broker.ack([one.lease for one in got])
    await broker.enqueue(queue, small)
    with noted_commands(redis_url) as commands:
        assert len(await broker.dequeue(queue, consumer="c", limit=1_000)) == 900
    assert bodies_read(commands) == [900]


async def test_bodies_of_an_older_program_are_read_a_few_at_a_time(
    broker: RedisBroker, queue: QueueRef, redis_url: str
) -> None:
    await broker.define(queue, spec())
    await put_large(broker, queue, 40)
    with Redis.from_url(redis_url) as redis:
        for key in redis.scan_iter("*q:*work", count=10_000):
            redis.hdel(key, "largest")
    await put_large(broker, queue, 1)
    with noted_commands(redis_url) as commands:
        got = await broker.dequeue(queue, consumer="c", limit=1_000)
    assert sum(bodies_read(commands)) <= REPLY_BODIES + 1
    assert 8 <= len(got) <= REPLY_BODIES


@pytest.mark.parametrize("end", ["lapsed", "expired"])
async def test_a_sweep_buries_few_large_messages_at_a_time(
    broker: RedisBroker, queue: QueueRef, manual_clock: ManualClock, end: str
) -> None:
    await broker.define(queue, spec())
    await put_large(broker, queue, 30, ttl_ms=5_000)
    leased = 0
    while end == "lapsed" and leased < 30:
        leased += len(await broker.dequeue(queue, consumer="c", limit=30))
    manual_clock.advance(5_000)
    runs = []
    while True:
        reply = await broker._runner.run("sweep", shard_of(queue.scope, shards=broker.shards), 250)
        runs.append(reply[2] + reply[3])
        if reply[5] == b"0":
            break
    assert max(runs) <= DEATHS
    assert sum(runs) == 30


async def test_few_large_deaths_are_carried_to_letters_at_a_time(
    broker: RedisBroker, queue: QueueRef
) -> None:
    await broker.define(queue, spec())
    await put_large(broker, queue, 9)
    leased = await broker.dequeue(queue, consumer="c", limit=9)
    await broker.dead_letter([Failure(lease=one.lease, error="e") for one in leased])
    shard, batches = shard_of(queue.scope, shards=broker.shards), list[int]()
    while dead := [one for one in await broker.take_dead(shard) if one.queue == queue]:
        batches.append(len(dead))
        await broker.drop_dead(shard, [one.message_id for one in dead])
    assert max(batches) <= CARRIED
    assert sum(batches) == 9


@pytest.mark.parametrize("verb", ["nack", "dead_letter"])
async def test_failures_bury_few_large_messages_in_one_script(
    broker: RedisBroker,
    environment: EnvironmentRef,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    queues = [environment.queue(name) for name in "ab"]
    leases: list[LeaseRef] = []
    for queue in queues:
        await broker.define(queue, spec(queue.queue))
        await put_large(broker, queue, 13)
    while len(leases) < 26:
        leases += [one.lease for one in await broker.dequeue(environment, consumer="c", limit=26)]
    gone = leases.pop(4)
    await broker.ack([gone])
    replies: list[bytes] = []
    send = broker._runner._send

    async def noted(*args: Any) -> list[Any]:
        reply = await send(*args)
        replies.append(reply[1])
        return reply

    monkeypatch.setattr(broker._runner, "_send", noted)
    answers = await getattr(broker, verb)(
        [Failure(lease=lease) for lease in [*leases[:4], gone, *leases[4:]]]
    )
    died = Settlement.DEAD if verb == "nack" else Settlement.DONE
    assert answers == [died] * 4 + [Settlement.LAPSED] + [died] * 21
    assert max(map(len, replies)) <= DEATHS + 1
    assert [(await broker.state(queue)).running for queue in queues] == [0, 0]


async def test_a_queue_with_many_expired_messages_lets_the_others_have_their_turn(
    broker: RedisBroker, environment: EnvironmentRef, manual_clock: ManualClock
) -> None:
    # Queues whose timers are equal take turns by name, so the crowded one would always come first.
    crowded, other = environment.queue("a"), environment.queue("b")
    shard = shard_of(environment, shards=broker.shards)
    await broker.define(crowded, spec("a"))
    await broker.define(other, spec("b", delivery=DeliveryPolicy(max_attempts=2, lease_ms=1_500)))
    for _ in range(5):
        await broker.enqueue(crowded, [NewMessage(payload=b"x", ttl_ms=1_000) for _ in range(1_000)])
    await broker.enqueue(other, [NewMessage(payload=b"y")])
    assert len(await broker.dequeue(other, consumer="c")) == 1
    manual_clock.advance(2_000)
    steps = 0
    while (await broker.state(other)).running:
        await broker.sweep(shard, limit=250)
        steps += 1
    assert steps <= 2
    assert (await broker.state(crowded)).depth >= 4_500


async def test_a_consumer_that_meets_expired_messages_goes_on_at_once(
    broker: RedisBroker, queue: QueueRef, manual_clock: ManualClock
) -> None:
    await broker.define(queue, spec())
    await broker.enqueue(queue, [NewMessage(payload=b"old", ttl_ms=1_000) for _ in range(950)])
    await broker.enqueue(queue, [NewMessage(payload=b"new")])
    manual_clock.advance(1_000)
    (got,) = await asyncio.wait_for(broker.dequeue(queue, consumer="c", limit=1), 5)
    assert got.payload == b"new"
    assert (await broker.state(queue)).odometers["expired"] == 950


@pytest.mark.parametrize("ordering", list(Ordering))
@pytest.mark.parametrize("way", ["late", "rescheduled", "returned", "retried", "clock"])
async def test_a_message_expires_in_time_behind_one_that_came_to_stand_before_it(
    broker: RedisBroker, queue: QueueRef, manual_clock: ManualClock, way: str, ordering: Ordering
) -> None:
    """The messages that expire soon enter before or after the one that expires late is placed before them."""
    shard = shard_of(queue.scope, shards=broker.shards)
    policy = DeliveryPolicy(max_attempts=9, lease_ms=500, initial_backoff_ms=500, jitter=0)
    await broker.define(
        queue, spec(ordering=ordering, delivery=policy, retention=Retention(max_age_ms=3_600_000))
    )
    soon = [NewMessage(payload=b"soon", ttl_ms=5_000, key=f"k{n}") for n in range(4)]
    late = NewMessage(payload=b"late", delay_ms=500 if way == "late" else None, key="k")
    if way == "clock":
        await broker.enqueue(queue, soon[:2])
        manual_clock.advance(-1_000)
    await broker.enqueue(queue, [late])
    if way in ("returned", "retried"):
        (got,) = await broker.dequeue(queue, consumer="c")
        if way == "retried":
            await broker.nack([Failure(lease=got.lease)])
    elif way == "rescheduled":
        await broker.reschedule(queue, [late.id], delay_ms=500)
    manual_clock.advance(1_000)
    # The message is due by now, but nobody has placed it yet.
    await broker.enqueue(queue, soon[2:] if way == "clock" else soon[:2])
    await broker.sweep(shard)
    await broker.enqueue(queue, [] if way == "clock" else soon[2:])
    manual_clock.advance(5_000)
    swept = await broker.sweep(shard)
    assert swept.expired == 4
    assert (await broker.state(queue)).depth == 1


async def test_a_queue_that_was_empty_lists_no_expiry_times_again(
    broker: RedisBroker, queue: QueueRef, redis_url: str
) -> None:
    await broker.define(queue, spec())
    await broker.enqueue(queue, [NewMessage(payload=b"x", delay_ms=3_600_000)])
    (mine,) = (await broker.list_messages(queue, MessageState.SCHEDULED)).messages
    await broker.cancel(queue, [mine.message_id])
    with noted_commands(redis_url) as commands:
        await broker.enqueue(queue, [NewMessage(payload=b"x")])
    assert not [words for words in commands if words[0] == "ZADD" and words[1].endswith(":expiry")]


async def test_scripts_bound_what_a_client_asks_for(broker: RedisBroker, queue: QueueRef) -> None:
    """A client in direct mode may send what it likes."""
    await broker.define(queue, spec())
    for _ in range(2):
        await broker.enqueue(queue, [NewMessage(payload=b"x") for _ in range(MAX_BATCH)])
    shard, ident, run = (
        shard_of(queue.scope, shards=broker.shards),
        keys.queue_ident(queue),
        broker._runner.change,
    )
    reply = await run("dequeue", shard, b"queue", ident, 10**9, 10**15, bytes(16), b"c")
    assert reply[5] == MAX_BATCH
    assert reply[6] - reply[2] <= MAX_LEASE_MS
    too_much: tuple[tuple[str, list[bytes | int]], ...] = (
        ("dequeue", [b"queue", ident, 1, 0, bytes(16), b"c" * 256]),
        ("dequeue", [b"queue", ident, 1, 0, b"", b"c"]),
        ("ack", [1, ident, bytes(32 * (MAX_BATCH + 1)), b"", b""]),
        ("extend", [1, *[ident, bytes(32)] * 3 * MAX_BATCH]),
        ("enqueue", [ident, b"0", b"", b"", b"", *[bytes(16), b""] * 3 * MAX_BATCH]),
        ("forget_calls", [0, *[b"slot"] * 6 * MAX_BATCH]),
    )
    for verb, arguments in too_much:
        with pytest.raises(ScriptFailed, match="TOO"):
            await run(verb, shard, *arguments)
    for verb, head in (("enqueue", [b"0", b"", b"", b""]), ("enqueue_one", [b"slot", b"1"])):
        with pytest.raises(ScriptFailed, match="TOO"):
            await run(verb, shard, ident, *head, bytes(16), layout.PLAIN_BODY + bytes(layout.MAX_BODY_BYTES))
    state = await broker.state(queue)
    assert (state.running, state.depth) == (MAX_BATCH, MAX_BATCH)
