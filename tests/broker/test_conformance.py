"""Both brokers keep every promise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest

from support.lives import emitted_lives
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.lives import Life
from weir.model.names import QueueRef
from weir.testing.clocks import ManualClock
from weir.testing.conformance import BrokerConformance
from weir.testing.conformance.lives import ReadLives
from weir.testing.memory import MemoryBroker


class TestMemoryBroker(BrokerConformance):
    @pytest.fixture
    def broker(self, manual_clock: ManualClock) -> MemoryBroker:
        return MemoryBroker(clock=manual_clock)

    @pytest.fixture
    def read_lives(self, broker: MemoryBroker) -> ReadLives:
        async def read(queue: QueueRef) -> list[Life]:
            return [life for life in broker.lives if life.queue == queue]

        return read


class TestRedisBroker(BrokerConformance):
    @pytest.fixture
    async def broker(self, manual_clock: ManualClock, redis_url: str) -> AsyncIterator[RedisBroker]:
        broker = RedisBroker(RedisConnection(url=redis_url), clock=manual_clock)
        yield broker
        await broker.aclose()

    @pytest.fixture
    def read_lives(self, broker: RedisBroker) -> ReadLives:
        return partial(emitted_lives, broker)
