"""Every broker keeps every promise, and so do clients in direct mode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest
from redis import Redis

from support.direct_broker import DirectBroker
from support.lives import emitted_lives, emitted_log
from weir.broker import keys
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.durations import DAY_MS
from weir.model.lives import Life
from weir.model.logged import LoggedMessage
from weir.model.message import Enqueue, NewMessage
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import QueueSpec
from weir.testing.clocks import ManualClock
from weir.testing.conformance import BrokerConformance
from weir.testing.conformance.lives import ReadLives
from weir.testing.conformance.log import ReadLog
from weir.testing.memory import MemoryBroker


def forget_allowances(redis_url: str, *, shards: int) -> None:
    """Direct entries are always allowed again, whatever earlier tests allowed on this Redis."""
    with Redis.from_url(redis_url) as redis:
        redis.delete(*(keys.shard_key(shard, "direct") for shard in range(shards)))


class TestMemoryBroker(BrokerConformance):
    @pytest.fixture
    def broker(self, manual_clock: ManualClock) -> MemoryBroker:
        return MemoryBroker(clock=manual_clock)

    @pytest.fixture
    def read_lives(self, broker: MemoryBroker) -> ReadLives:
        async def read(queue: QueueRef) -> list[Life]:
            return [life for life in broker.lives if life.queue == queue]

        return read

    @pytest.fixture
    def read_log(self, broker: MemoryBroker) -> ReadLog:
        async def read(queue: QueueRef) -> list[LoggedMessage]:
            return [one for one in broker.logged if one.life.queue == queue]

        return read


class TestRedisBroker(BrokerConformance):
    @pytest.fixture
    async def broker(self, manual_clock: ManualClock, redis_url: str) -> AsyncIterator[RedisBroker]:
        broker = RedisBroker(RedisConnection(url=redis_url), clock=manual_clock)
        forget_allowances(redis_url, shards=broker.shards)
        yield broker
        await broker.aclose()

    @pytest.fixture
    def read_lives(self, broker: RedisBroker) -> ReadLives:
        return partial(emitted_lives, broker)

    @pytest.fixture
    def read_log(self, broker: RedisBroker) -> ReadLog:
        return partial(emitted_log, broker)


class TestDirectMode(BrokerConformance):
    @pytest.fixture
    async def broker(self, manual_clock: ManualClock, redis_url: str) -> AsyncIterator[DirectBroker]:
        broker = DirectBroker(RedisConnection(url=redis_url), clock=manual_clock)
        forget_allowances(redis_url, shards=broker.shards)
        yield broker
        await broker.aclose()

    @pytest.fixture
    def read_lives(self, broker: DirectBroker) -> ReadLives:
        return partial(emitted_lives, broker)

    @pytest.fixture
    def read_log(self, broker: DirectBroker) -> ReadLog:
        return partial(emitted_log, broker)

    async def test_an_idempotency_key_is_taken_once_in_its_window(
        self, broker: DirectBroker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        """As promised, but a client is not told which message a reused key belongs to."""
        await broker.define(queue, QueueSpec(name="work", idempotency_window_ms=1_000))
        keyed = [NewMessage(payload=text, idempotency_key="k") for text in (b"a", b"a", b"b")]
        answers = await broker.enqueue(queue, keyed)
        assert [answer.outcome for answer in answers] == [
            Enqueue.ACCEPTED,
            Enqueue.DUPLICATE,
            Enqueue.KEY_REUSED,
        ]
        assert answers[1].message_id == keyed[0].id
        manual_clock.advance(999)
        again = NewMessage(payload=b"a", idempotency_key="k")
        assert (await broker.enqueue(queue, [again]))[0].outcome is Enqueue.DUPLICATE
        manual_clock.advance(1)
        assert (await broker.enqueue(queue, [again]))[0].outcome is Enqueue.ACCEPTED

    async def test_direct_entry_is_allowed_until_the_stated_time(
        self, broker: DirectBroker, queue: QueueRef, manual_clock: ManualClock
    ) -> None:
        """All that a client enqueues is a direct entry."""
        await broker.define(queue, QueueSpec(name="work"))
        shard, now = shard_of(queue.scope, shards=broker.shards), manual_clock.now_ms()
        await broker.allow_direct(shard, until_ms=now)
        try:
            assert (await broker.enqueue(queue, [NewMessage(payload=b"a")]))[0].outcome is Enqueue.ACCEPTED
            manual_clock.advance(1)
            assert (await broker.enqueue(queue, [NewMessage(payload=b"b")]))[0].outcome is Enqueue.GATED
        finally:
            await broker.allow_direct(shard, until_ms=now + 10 * 365 * DAY_MS)
