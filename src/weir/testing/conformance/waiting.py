"""Long polling: a waiting consumer is woken by a new message."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import replace

from weir.broker.broker import Broker, Shard, Source
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.testing.conformance.base import PLAIN, Promises, texts

# A busy machine delays single tries, so the tests judge many.
_TRIES = 15
_WAKE_UP_S, _STEPS = 0.020, 3


class Waiting(Promises):
    async def test_a_waiting_consumer_gets_a_message_within_20_ms(
        self, broker: Broker, queue: QueueRef
    ) -> None:
        await broker.define(queue, PLAIN)
        shard = Shard(shard_of(queue.scope, shards=broker.shards))
        for source in (queue, queue.scope, shard):
            # Others may have left messages in the shard.
            while await self.take(broker, shard, limit=1_000):
                pass
            woken, at_hand = [], []
            for _ in range(_TRIES):
                woken.append(await self._wait_s(broker, queue, source))
                at_hand.append(await self._take_s(broker, queue, source))
            # On a starved machine every step takes longer, those without waiting too.
            slowness = _STEPS * statistics.median(at_hand)
            assert statistics.median(woken) < _WAKE_UP_S + slowness, (woken, at_hand)

    async def _wait_s(self, broker: Broker, queue: QueueRef, source: Source) -> float:
        """The seconds from enqueue until a consumer that already waits has the message."""
        waiting = asyncio.create_task(self.take(broker, source, wait_ms=5_000))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        started = time.perf_counter()
        await self.put(broker, queue, "a")
        (got,) = await waiting
        taken = time.perf_counter() - started
        await broker.ack([got.lease])
        return taken

    async def _take_s(self, broker: Broker, queue: QueueRef, source: Source) -> float:
        """The same seconds for a consumer that comes after the message."""
        started = time.perf_counter()
        await self.put(broker, queue, "a")
        (got,) = await self.take(broker, source)
        taken = time.perf_counter() - started
        await broker.ack([got.lease])
        return taken

    async def test_a_consumer_that_waits_in_vain_gets_nothing(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, PLAIN)
        started = time.monotonic()
        assert await self.take(broker, queue, wait_ms=100) == []
        assert 0.09 < time.monotonic() - started < 2

    async def test_freed_room_wakes_a_waiting_consumer(self, broker: Broker, queue: QueueRef) -> None:
        await broker.define(queue, replace(PLAIN, concurrency=1))
        await self.put(broker, queue, "a", "b")
        (first,) = await self.take(broker, queue)
        waiting = asyncio.create_task(self.take(broker, queue, wait_ms=5_000))
        await asyncio.sleep(0.05)
        await broker.ack([first.lease])
        assert texts(await asyncio.wait_for(waiting, 1)) == ["b"]
