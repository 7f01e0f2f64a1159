"""What an older program wrote is read, and what a newer one wrote is refused; nothing is misread."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from support.lives import emitted_lives
from support.servers import RunningServer, redis_server, start_server
from weir.broker import keys, layout
from weir.broker.broker import ForOperations, Gated
from weir.broker.records import MARK, Record
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.errors import BrokerUnavailable, Misconfigured
from weir.model.ids import MessageId, NamedCall
from weir.model.inspection import MessageState, Touched, WaitParts
from weir.model.lives import AttemptEnd, LifeAttempt
from weir.model.message import DeathReason, Delivery, Enqueue, Failure, LeaseRef, NewMessage, Settlement
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import Ordering, QueueSpec
from weir.telemetry.codec import unpack
from weir.telemetry.events import QUEUE
from weir.testing.clocks import ManualClock

STORES: dict[int, dict[str, Any]] = {
    version: json.loads((Path(__file__).parent / "golden" / f"store_v{version}.json").read_text())
    for version in (0, 2, 4)
}
"""By the version of the state: before there were versions, before bodies ended with a place, and before
leases held what a life needs."""
UNPLACED = (0, 2)
"""Of these versions messages neither say their place nor how the clocks stood."""
SAID, KEYS = STORES[0]["said"], STORES[0]["keys"]
ENVIRONMENT = EnvironmentRef(organization="acme", project="shop ✓", environment="prod")
SHARD = shard_of(ENVIRONMENT, shards=4)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("layouts")
    running = start_server(lambda port: redis_server(folder / "redis", port=port), log_folder=folder)
    yield running
    running.stop()


@pytest.fixture
def redis(server: RunningServer) -> Iterator[Redis]:
    """A Redis of the test's own as a program without versions left it."""
    with Redis.from_url(server.url) as redis:
        fill_with(redis, version=0)
        yield redis


def fill_with(redis: Redis, *, version: int) -> None:
    redis.flushall()
    for key, (kind, content) in STORES[version]["keys"].items():
        fill(redis, bytes.fromhex(key), kind, content)


def fill(redis: Redis, key: bytes, kind: str, content: Any) -> None:
    match kind:
        case "string":
            redis.set(key, bytes.fromhex(content))
        case "hash":
            redis.hset(key, mapping={bytes.fromhex(n): bytes.fromhex(v) for n, v in content.items()})
        case "zset":
            redis.zadd(key, {bytes.fromhex(member): score for member, score in content.items()})
        case "stream":
            for entry_id, event in content:
                redis.xadd(key, {b"e": bytes.fromhex(event)}, id=entry_id)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SAID["now_ms"])


@pytest.fixture
async def broker(redis: Redis, server: RunningServer, clock: ManualClock) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(RedisConnection(url=server.url), clock=clock, chance=lambda: 0.25)
    yield broker
    await broker.aclose()


def queue(name: str) -> QueueRef:
    return ENVIRONMENT.queue(name)


def base(name: str) -> bytes:
    return keys.prefix(SHARD) + b"q:" + keys.queue_ident(queue(name))


async def pop(broker: RedisBroker, name: str, *, limit: int = 10) -> list[Delivery]:
    return await broker.dequeue(queue(name), consumer="new", limit=limit)


def payloads(deliveries: list[Delivery]) -> list[str]:
    return [one.payload.decode() for one in deliveries]


def held_before(name: str, payload: str) -> LeaseRef:
    """A lease that was handed out before."""
    return held_in(0, name, payload)


def held_in(version: int, name: str, payload: str) -> LeaseRef:
    lease = STORES[version]["said"]["leases"][payload]
    return LeaseRef(queue=queue(name), message_id=lease["id"], token=lease["token"])


async def test_queues_of_before_versions_are_as_they_were(broker: RedisBroker) -> None:
    found = {state.queue.queue: state for state in await broker.states(ENVIRONMENT)}
    assert sorted(found) == [said["queue"] for said in SAID["states"]]
    for said in SAID["states"]:
        state = found[said["queue"]]
        for name in ("depth", "delayed", "running", "limit", "environment_depth", "oldest_age_ms", "paused"):
            assert getattr(state, name) == said[name], (said["queue"], name)
        assert {name: state.odometers[name] for name in said["odometers"]} == said["odometers"]


async def test_messages_of_before_versions_come_out_in_their_order(
    broker: RedisBroker, clock: ManualClock
) -> None:
    assert payloads(await pop(broker, "plain")) == ["urgent", "usual", "short", "over-0", "over-1", "low"]
    assert payloads(await pop(broker, "fifo")) == []
    assert await broker.ack([held_before("fifo", "f0")]) == [Settlement.DONE]
    assert payloads(await pop(broker, "fifo")) == ["f1"]
    clock.advance(30_000)
    failed, later = sorted(await pop(broker, "plain"), key=lambda one: one.payload)
    assert (failed.payload, failed.attempt, failed.last_error) == (b"failed-once", 2, "connection refused")
    assert failed.headers == {"kind": "retry"}
    assert later.payload == b"later"
    await broker.resume(queue("paused"))
    assert payloads(await pop(broker, "paused")) == ["held"]


async def test_messages_without_a_key_that_waited_for_each_other_are_freed(broker: RedisBroker) -> None:
    """The first of them is still leased."""
    await broker.resume(queue("keyed"))
    assert payloads(await pop(broker, "keyed")) == ["none-1", "none-2", "none-3", "b0"]


async def test_leases_of_before_versions_settle(broker: RedisBroker) -> None:
    failure = Failure(lease=held_before("plain", "leased"), error="late")
    assert await broker.dead_letter([failure]) == [Settlement.DONE]
    assert await broker.extend([held_before("keyed", "a0")], lease_ms=1_000) == [Settlement.DONE]
    assert await broker.ack([held_before("keyed", "a0")]) == [Settlement.DONE]
    assert "a1" in payloads(await pop(broker, "keyed"))


async def test_dead_messages_of_before_versions_are_carried_off(broker: RedisBroker) -> None:
    await broker.dead_letter([Failure(lease=held_before("fifo", "f0"), error="new")])
    dead = {one.payload: one for one in await broker.take_dead(SHARD)}
    assert {payload: (one.queue.queue, one.reason, one.error) for payload, one in dead.items()} == {
        b"rejected": ("plain", DeathReason.REJECTED, "no such"),
        b"too-old": ("plain", DeathReason.EXPIRED, ""),
        b"f0": ("fifo", DeathReason.REJECTED, "new"),
    }
    assert [dead[name].max_attempts for name in (b"rejected", b"f0")] == [3, 5]


async def test_promises_of_before_versions_hold(broker: RedisBroker) -> None:
    again = NewMessage(payload=b"usual", idempotency_key="once")
    assert [one.outcome for one in await broker.enqueue(queue("plain"), [again])] == [Enqueue.DUPLICATE]
    fresh = NewMessage(payload=b"no room")
    assert [one.outcome for one in await broker.enqueue(queue("plain"), [fresh])] == [Enqueue.FULL]
    await broker.ack([one.lease for one in await pop(broker, "plain", limit=2)])
    behind_gate = NewMessage(payload=b"x", key="customer-2")
    assert [one.outcome for one in await broker.enqueue(queue("plain"), [behind_gate])] == [Enqueue.GATED]
    operation = "0198c0de-0000-7000-8000-000000000001"
    assert await broker.stale_gates(SHARD, older_ms=0) == [
        (queue("plain"), Gated(key="customer-2", operation=operation))
    ]
    (answer,) = await broker.enqueue(queue("plain"), [behind_gate], entry=ForOperations(ids=[operation]))
    assert answer.outcome is Enqueue.ACCEPTED
    await broker.open_gates(queue("plain"), [Gated(key="customer-2", operation=operation)])
    (answer,) = await broker.enqueue(queue("plain"), [NewMessage(payload=b"y", key="customer-2")])
    assert answer.outcome is Enqueue.ACCEPTED


async def test_calls_of_before_versions_are_known_and_forgotten_in_time(
    broker: RedisBroker, redis: Redis, clock: ManualClock
) -> None:
    known = await broker.settle_call(queue("plain"), NamedCall(slot="other/1", id="c"))
    assert [one.is_done for one in known] == [True, True, False, False]
    assert await broker.idle_calls(SHARD, idle_ms=60_000) == []
    clock.advance(60_000)
    slots = await broker.idle_calls(SHARD, idle_ms=60_000)
    assert slots == ["other/1", "process-of-old/1"]
    known = await broker.settle_call(queue("plain"), NamedCall(slot="other/1", id="c"))
    assert [one.is_done for one in known] == [True, True, False, False]
    assert await broker.forget_calls(SHARD, slots, idle_ms=60_000) == 2
    assert redis.exists(keys.shard_key(SHARD, "calls")) == 0


@pytest.mark.parametrize("again", [False, True])
async def test_a_queue_that_was_forgotten_goes_on_counting(broker: RedisBroker, again: bool) -> None:
    await broker.define(queue("gone"), QueueSpec(name="gone"))
    if again:
        await broker.forget(queue("gone"))
        await broker.define(queue("gone"), QueueSpec(name="gone"))
    odometers = (await broker.state(queue("gone"))).odometers
    assert (odometers["enqueued"], odometers["acked"], odometers["dead"]) == (2, 2, 0)


async def test_a_queue_says_its_version_once_it_changed(broker: RedisBroker, redis: Redis) -> None:
    assert redis.hget(base("fifo"), "s") is not None
    await broker.ack([held_before("fifo", "f0")])
    stored: Any = redis.hgetall(base("fifo"))
    assert stored[b"state"][0] == layout.STATE.mark
    assert b"s" not in stored
    await broker.define(queue("fifo"), QueueSpec(name="fifo", ordering=Ordering.FIFO))
    promises: Any = redis.hget(base("fifo"), "c")
    assert promises[0] == layout.PROMISES.mark


async def ids_in(broker: RedisBroker, name: str) -> dict[str, MessageId]:
    """Every message of a queue by its payload, as pages list them."""
    found = {}
    for state in MessageState:
        page = await broker.list_messages(queue(name), state)
        assert page.cursor is None
        found |= {one.preview.decode(): one.message_id for one in page.messages}
    return found


@pytest.mark.parametrize("version", UNPLACED)
async def test_messages_of_older_programs_are_shown_by_their_ids(
    broker: RedisBroker, redis: Redis, version: int
) -> None:
    fill_with(redis, version=version)
    for name, waiting in {"plain": 9, "fifo": 4, "keyed": 9, "paused": 1}.items():
        ids = await ids_in(broker, name)
        assert len(ids) == waiting
        for payload, message_id in ids.items():
            shown = await broker.show_message(queue(name), message_id)
            assert shown is not None
            assert shown.payload == payload.encode()
            assert await broker.find_message(ENVIRONMENT, message_id) == queue(name)
    ids = await ids_in(broker, "plain")
    failed = await broker.show_message(queue("plain"), ids["failed-once"])
    assert failed is not None
    assert (failed.state, failed.last_error) == (MessageState.RETRYING, "connection refused")
    counts = await broker.count_messages(queue("plain"))
    assert (counts.ready, counts.scheduled, counts.retrying, counts.leased) == (6, 1, 1, 1)
    # The head that a program of before locked its key for is not known by its id.
    behind = await broker.show_message(queue("fifo"), (await ids_in(broker, "fifo"))["f1"])
    assert behind is not None
    assert (behind.state, behind.ahead, behind.behind_id) == (MessageState.BLOCKED, 1, None)


@pytest.mark.parametrize("version", UNPLACED)
async def test_messages_of_older_programs_are_moved_and_cancelled(
    broker: RedisBroker, redis: Redis, clock: ManualClock, version: int
) -> None:
    fill_with(redis, version=version)
    ids = await ids_in(broker, "plain")
    moved = [ids["later"], ids["failed-once"]]
    assert await broker.run_now(queue("plain"), moved) == [Touched.DONE] * 2
    assert await broker.change_priority(queue("plain"), [ids["low"]], 9) == [Touched.DONE]
    removed = [ids["usual"], ids["leased"], ids["short"]]
    done = [Touched.DONE, Touched.REVOKED, Touched.DONE]
    assert await broker.cancel(queue("plain"), removed) == done
    assert payloads(await pop(broker, "plain")) == [
        "urgent", "low", "over-0", "over-1", "later", "failed-once",
    ]  # fmt: skip
    counts = await broker.count_messages(queue("plain"))
    assert (counts.ready, counts.delayed, counts.retrying, counts.leased) == (0, 0, 0, 6)
    keyed = await ids_in(broker, "keyed")
    head = held_in(version, "keyed", "a0")
    assert await broker.cancel(queue("keyed"), [head.message_id]) == [Touched.REVOKED]
    assert await broker.cancel(queue("keyed"), [keyed["a2"]]) == [Touched.DONE]
    assert payloads(await pop(broker, "keyed"))[0] == "a1"
    assert redis.hget(base("plain"), "index") == b"all"


@pytest.mark.parametrize("version", UNPLACED)
async def test_one_call_cancels_messages_that_are_indexed_and_others(
    broker: RedisBroker, redis: Redis, version: int
) -> None:
    fill_with(redis, version=version)
    ids, lease = await ids_in(broker, "fifo"), held_in(version, "fifo", "f0")
    asked = [ids["f1"], lease.message_id, ids["f2"]]
    assert await broker.cancel(queue("fifo"), asked) == [Touched.DONE, Touched.REVOKED, Touched.DONE]
    assert payloads(await pop(broker, "fifo")) == ["f3"]


@pytest.mark.parametrize("version", UNPLACED)
async def test_what_messages_of_older_programs_waited_for_is_unknown_until_they_move(
    broker: RedisBroker, redis: Redis, clock: ManualClock, version: int
) -> None:
    fill_with(redis, version=version)
    ids = await ids_in(broker, "plain")
    for payload, message_id in ids.items():
        why = await broker.why(queue("plain"), message_id)
        assert why is not None
        known = why.parts.scheduled_ms if payload == "later" else why.parts.unknown_ms
        assert known == why.parts.total_ms == why.until_ms - why.enqueued_at_ms
    lease = held_in(version, "plain", "leased")
    before = await broker.why(queue("plain"), lease.message_id)
    await broker.nack([Failure(lease=lease, delay_ms=500)])
    clock.advance(700)
    after = await broker.why(queue("plain"), lease.message_id)
    assert before is not None
    assert after is not None
    known = WaitParts(unknown_ms=before.parts.total_ms, backoff_ms=500, unasked_ms=200)
    assert after.parts == known
    fresh = NewMessage(payload=b"fresh")
    await broker.enqueue(queue("paused"), [fresh])
    assert await broker.show_message(queue("paused"), (await ids_in(broker, "paused"))["held"]) is not None
    clock.advance(40)
    why = await broker.why(queue("paused"), fresh.id)
    assert why is not None
    assert why.parts == WaitParts(paused_ms=40)


async def test_a_message_whose_body_alone_is_left_is_gone(broker: RedisBroker, redis: Redis) -> None:
    orphan = "018bcfe5-6800-7000-8000-0000000000ff"
    redis.hset(base("plain") + b":bodies", layout.id_bytes(orphan), bytes(6))
    assert await broker.cancel(queue("plain"), [MessageId(orphan)]) == [Touched.GONE]
    assert await broker.show_message(queue("plain"), MessageId(orphan)) is None


OF_BEFORE = "return {struct.unpack('>" + "I8" * 13 + "', redis.call('HGET', KEYS[1], ARGV[1]))}"
"""How a program without versions reads the state of a queue."""


async def test_a_program_without_versions_fails_rather_than_misreads(
    broker: RedisBroker, redis: Redis
) -> None:
    assert redis.eval(OF_BEFORE, 1, base("fifo"), "s")
    await broker.ack([held_before("fifo", "f0")])
    with pytest.raises(ResponseError, match="bad argument"):
        redis.eval(OF_BEFORE, 1, base("fifo"), "s")
    await broker.define(queue("gone"), QueueSpec(name="gone"))
    await broker.forget(queue("gone"))
    with pytest.raises(ResponseError, match="too short"):
        redis.eval(OF_BEFORE, 1, keys.shard_key(SHARD, "retired"), keys.queue_ident(queue("gone")))


async def test_a_queue_of_a_newer_program_is_refused_and_stays_as_it_is(
    broker: RedisBroker, redis: Redis
) -> None:
    await broker.resume(queue("fifo"))
    state: Any = redis.hget(base("fifo"), "state")
    newer = bytes([layout.STATE.mark + 1]) + state[1:] + bytes(8)
    redis.hset(base("fifo"), "state", newer)
    for attempt in (
        broker.enqueue(queue("fifo"), [NewMessage(payload=b"x")]),
        pop(broker, "fifo"),
        broker.ack([held_before("fifo", "f0")]),
        broker.define(queue("fifo"), QueueSpec(name="fifo", ordering=Ordering.FIFO)),
        broker.state(queue("fifo")),
    ):
        with pytest.raises(BrokerUnavailable, match="start a newer Weir"):
            await attempt
    assert redis.hget(base("fifo"), "state") == newer
    assert redis.hlen(base("fifo") + b":bodies") == 4


async def test_a_redis_that_a_newer_program_used_is_refused_at_the_first_call(
    broker: RedisBroker, redis: Redis, server: RunningServer
) -> None:
    await broker.state(queue("fifo"))
    announced = keys.shard_key(SHARD, "layouts")
    assert redis.hgetall(announced) == {
        name.encode(): str(version).encode() for name, version in layout.VERSIONS.items()
    }
    redis.hset(announced, "event.queue", 99)
    later = RedisBroker(RedisConnection(url=server.url))
    with pytest.raises(Misconfigured, match=r"`event.queue` of version 99.*start a newer Weir"):
        await later.state(queue("fifo"))
    await later.aclose()


def test_events_of_the_first_layout_decode() -> None:
    stream = next(content for kind, content in KEYS.values() if kind == "stream")
    events = [unpack(QUEUE, bytes.fromhex(event)) for _, event in stream]
    assert {event.dimensions[:3] for event in events} == {("acme", "shop ✓", "prod")}
    refused = sum(event.values["refused"] for event in events)
    enqueued = sum(event.values["enqueued"] for event in events)
    assert (refused, enqueued) == (2, 30)


RECORD = Record(name="R", added=((("a", "I1"), ("b", "I8")), (), (("c", "I2"),)))


def test_a_record_that_grew_reads_what_was_there_before(redis: Redis) -> None:
    filled_up = (Path(layout.__file__).parent / "lua" / "includes" / "filled_up.lua").read_text()
    script = f"{layout.lua_mark()}{filled_up}{RECORD.lua_block()}return current_r(ARGV[1])"
    version_0 = bytes([7]) + (513).to_bytes(8, "big") + b"tail"
    version_1 = bytes([MARK + 1]) + version_0
    version_2 = bytes([MARK + 2]) + version_0[:-4] + bytes(2) + b"tail"
    for packed in (version_0, version_1, version_2):
        assert redis.eval(script, 0, packed) == version_2
    assert RECORD.pack(a=7, b=513, c=0) == version_2[:-4]
    with pytest.raises(ResponseError, match="NEWER r 3"):
        redis.eval(script, 0, bytes([MARK + 3]) + version_0)


async def test_messages_of_before_lives_have_lives_too(
    redis: Redis, broker: RedisBroker, clock: ManualClock
) -> None:
    fill_with(redis, version=4)
    now, plain = clock.now_ms(), queue("plain")
    clock.advance(250)
    leased = held_in(4, "plain", "leased")
    await broker.ack([leased, held_in(4, "fifo", "f0")])
    (life,) = await emitted_lives(broker, plain)
    assert (life.message_id, life.key, life.payload_bytes) == (leased.message_id, "customer-1", len("leased"))
    assert life.last_attempts == (
        LifeAttempt(started_at_ms=now, ended_at_ms=now + 250, end=AttemptEnd.ACKED, consumer="worker-1"),
    )
    assert (life.parts, life.leased_ms) == (WaitParts(), 250)
    # Its followers waited behind a head that an older program handed out.
    (second,) = await pop(broker, "fifo", limit=1)
    await broker.ack([second.lease])
    assert [one.blocked_by_id for one in await emitted_lives(broker, queue("fifo"))] == [
        None,
        held_in(4, "fifo", "f0").message_id,
    ]
    clock.advance(5_000)
    for delivery in await pop(broker, "plain"):
        await broker.ack([delivery.lease])
    lives = {one.payload_bytes: one for one in await emitted_lives(broker, plain)}
    # Who had it before, and when, nobody noted; how often it was handed out is known.
    failed = lives[len("failed-once")]
    assert (failed.attempts, len(failed.last_attempts), failed.parts.unknown_ms) == (2, 1, 0)
    assert redis.hget(base("plain"), "upgraded") is None
