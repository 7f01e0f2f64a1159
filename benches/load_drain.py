"""How fast one processor drains a full operation queue, for the load bench."""

from __future__ import annotations

import asyncio
from typing import Any

from weir.admission.kinds import OperationType
from weir.broker.broker import Gated
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.exchange.service import OperationService
from weir.model.message import NewMessage
from weir.model.shards import shard_of
from weir.operations.model import NewOperation, partition_of
from weir.operations.payload import Push, encode_push
from weir.operations.queue import OperationQueue
from weir.serve.bootstrap import DEFAULT
from weir.settings import StoreUrls, load_settings
from weir.spec.ir import QueueSpec


async def drain(urls: StoreUrls, *, operations: int) -> dict[str, Any]:
    """Fill the operation queue, and measure how fast one processor drains it."""
    shards = load_settings().shards
    broker = RedisBroker(RedisConnection(url=urls.redis), shards=shards)
    queue = DEFAULT.queue("drain")
    loop = asyncio.get_running_loop()
    async with Database(urls.postgres, max_size=4) as database:
        store = OperationQueue(database)
        await broker.define(queue, QueueSpec(name=queue.queue))
        for at in range(0, operations, 500):
            batch = [_operation(n, shard=shard_of(queue.scope, shards=shards)) for n in range(at, at + 500)]
            await broker.close_gates(queue, [Gated(key=one.key, operation=one.id) for one in batch])
            await store.add(batch)
        service = OperationService(database=database, broker=broker)
        started = loop.time()
        while await store.depth():
            await service.processor.run_round()
        took = loop.time() - started
        delivered = (await broker.state(queue)).depth
    await broker.aclose()
    return {"drain_per_s": round(operations / took), "drained": delivered}


def _operation(number: int, *, shard: int) -> NewOperation:
    queue, key = DEFAULT.queue("drain"), f"p{number % 1_000}"
    message = NewMessage(payload=f"{number}".encode(), key=key)
    return NewOperation(
        queue=queue,
        key=key,
        type=OperationType.PUSH,
        partition=partition_of(queue, key),
        shard=shard,
        payload=encode_push(Push(messages=(message,))),
        messages=1,
    )
