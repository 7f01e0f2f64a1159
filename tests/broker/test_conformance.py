"""Both brokers keep every promise."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.testing.clocks import ManualClock
from weir.testing.conformance import BrokerConformance
from weir.testing.memory import MemoryBroker


class TestMemoryBroker(BrokerConformance):
    @pytest.fixture
    def broker(self, manual_clock: ManualClock) -> MemoryBroker:
        return MemoryBroker(clock=manual_clock)


class TestRedisBroker(BrokerConformance):
    @pytest.fixture
    async def broker(self, manual_clock: ManualClock, redis_url: str) -> AsyncIterator[RedisBroker]:
        broker = RedisBroker(RedisConnection(url=redis_url), clock=manual_clock)
        yield broker
        await broker.aclose()
