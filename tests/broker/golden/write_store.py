"""Writes `store_v0.json`, `store_v2.json` and `store_v4.json`: a Redis as programs of these layouts left it.

It ran once with the program of each layout, and stays as the record of how the fixtures came about. (The
first program spelled a named call `call=NamedCall(lane=…)`.)

    python write_store.py REDIS_URL store_v2.json

Every key is kept with its type and its content in hexadecimal digits, so that any Redis can be filled.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from redis import Redis

from weir.broker.broker import Gated, NamedCall
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.message import Delivery, Failure, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.spec.ir import DeliveryPolicy, Ordering, QueueSpec, Retention
from weir.testing.clocks import ManualClock

ENVIRONMENT = EnvironmentRef(organization="acme", project="shop ✓", environment="prod")
SPECS = {
    "plain": QueueSpec(
        name="plain",
        delivery=DeliveryPolicy(max_attempts=3, lease_ms=60_000, initial_backoff_ms=5_000, jitter=0.5),
        retention=Retention(max_age_ms=3_600_000, max_depth=8),
        concurrency=20,
    ),
    "fifo": QueueSpec(name="fifo", ordering=Ordering.FIFO, message_ttl_ms=1_800_000),
    "keyed": QueueSpec(name="keyed", ordering=Ordering.PER_KEY, delivery=DeliveryPolicy(max_attempts=2)),
    "paused": QueueSpec(name="paused"),
    "gone": QueueSpec(name="gone"),
}


class Scenario:
    """Fills a Redis through the broker, under a clock that moves only when it is told to."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.broker = RedisBroker(RedisConnection(url=url), clock=self.clock, chance=lambda: 0.25)
        self.ids = 0
        self.leases: dict[str, dict[str, Any]] = {}

    def message(self, payload: str, **fields: Any) -> NewMessage:
        self.ids += 1
        number = f"018bcfe5-6800-7000-8000-{self.ids:012x}"
        return NewMessage(id=number, payload=payload.encode(), **fields)  # type: ignore[arg-type]

    async def push(self, queue: str, *messages: NewMessage, **options: Any) -> None:
        await self.broker.enqueue(self.queue(queue), list(messages), **options)

    async def pop(self, queue: str, limit: int = 1) -> list[Delivery]:
        return await self.broker.dequeue(self.queue(queue), consumer="worker-1", limit=limit)

    def keep(self, delivery: Delivery) -> None:
        """Note a lease that stays open."""
        self.leases[delivery.payload.decode()] = {"id": delivery.message_id, "token": delivery.lease.token}

    def queue(self, name: str) -> QueueRef:
        return ENVIRONMENT.queue(name)

    async def run(self) -> None:
        for name, spec in SPECS.items():
            await self.broker.define(self.queue(name), spec)
        await self.broker.limit(ENVIRONMENT, 50)
        await self.plain()
        await self.fifo()
        await self.keyed()
        await self.rest()

    async def plain(self) -> None:
        await self.push("plain", *(self.message(f"done-{n}") for n in range(3)))
        await self.broker.ack([one.lease for one in await self.pop("plain", 3)])
        await self.push("plain", self.message("rejected"))
        await self.broker.dead_letter([Failure(lease=(await self.pop("plain"))[0].lease, error="no such")])
        await self.push("plain", self.message("too-old", ttl_ms=1_000))
        self.clock.advance(2_000)
        await self.broker.sweep(self.shard)
        await self.push("plain", self.message("failed-once", headers={"kind": "retry"}))
        await self.broker.nack(
            [Failure(lease=(await self.pop("plain"))[0].lease, error="connection refused")]
        )
        await self.push("plain", self.message("leased", key="customer-1"))
        self.keep((await self.pop("plain"))[0])
        await self.push(
            "plain",
            self.message("low", priority=1),
            self.message("usual", idempotency_key="once", headers={"trace": "1"}),
            self.message("urgent", priority=9),
            self.message("later", deliver_at_ms=self.clock.now_ms() + 30_000),
            self.message("short", ttl_ms=120_000),
            entry=NamedCall(slot="process-of-old/1", id="call-1"),
        )
        await self.push(
            "plain", *(self.message(f"over-{n}") for n in range(4)), entry=NamedCall(slot="other/1", id="c")
        )
        gates = [Gated(key="customer-2", operation="0198c0de-0000-7000-8000-000000000001")]
        await self.broker.close_gates(self.queue("plain"), gates)

    async def fifo(self) -> None:
        await self.push("fifo", *(self.message(f"f{n}") for n in range(4)))
        self.keep((await self.pop("fifo"))[0])

    async def keyed(self) -> None:
        await self.push("keyed", *(self.message(f"a{n}", key="a") for n in range(3)))
        await self.push("keyed", *(self.message(f"none-{n}") for n in range(4)))
        await self.push(
            "keyed",
            self.message("b0", key="b"),
            self.message("none-later", deliver_at_ms=self.clock.now_ms() + 10_000),
        )
        for delivery in await self.pop("keyed", 2):
            self.keep(delivery)

    async def rest(self) -> None:
        await self.push("paused", self.message("held"))
        await self.broker.pause(self.queue("paused"))
        await self.push("gone", self.message("g0"), self.message("g1"))
        await self.broker.ack([one.lease for one in await self.pop("gone", 2)])
        await self.broker.forget(self.queue("gone"))

    @property
    def shard(self) -> int:
        return shard_of(ENVIRONMENT, shards=4)


def content(redis: Redis, key: bytes) -> Any:
    """What a key holds, as hexadecimal digits."""
    kind = redis.type(key)
    match kind:
        case b"string":
            return ["string", redis.get(key).hex()]  # type: ignore[union-attr]
        case b"hash":
            return ["hash", {name.hex(): value.hex() for name, value in redis.hgetall(key).items()}]  # type: ignore[union-attr]
        case b"zset":
            return ["zset", {name.hex(): score for name, score in redis.zrange(key, 0, -1, withscores=True)}]  # type: ignore[union-attr]
        case b"stream":
            return ["stream", [[id_.decode(), fields[b"e"].hex()] for id_, fields in redis.xrange(key)]]  # type: ignore[union-attr]
    raise ValueError(f"{key!r} is a {kind!r}")


async def written(url: str) -> dict[str, Any]:
    scenario = Scenario(url)
    await scenario.run()
    states = await scenario.broker.states(ENVIRONMENT)
    await scenario.broker.aclose()
    redis = Redis.from_url(url)
    found = {key.hex(): content(redis, key) for key in sorted(redis.keys("weir:*")) if b":op:" not in key}
    said = {
        "now_ms": scenario.clock.now_ms(),
        "leases": scenario.leases,
        "states": [
            {**asdict(state), "queue": state.queue.queue, "odometers": dict(state.odometers)}
            for state in states
        ],
    }
    return {"said": said, "keys": found}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(asyncio.run(written(sys.argv[1])), indent=1) + "\n")
