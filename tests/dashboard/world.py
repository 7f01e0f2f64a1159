"""Making things happen behind the pages: queues, messages, deaths and a past."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from support.history import Moment, land_moments
from weir.broker.redis import RedisBroker
from weir.model.ids import MessageId
from weir.model.message import Failure, NewMessage, QueueState
from weir.model.names import EnvironmentRef
from weir.settings import StoreUrls
from weir.spec.ir import DeliveryPolicy, QueueSpec
from weir.warehouse.connection import ClickHouseConnection


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where the dashboard is, and a tenant with tokens."""

    url: str
    urls: StoreUrls
    environment: EnvironmentRef
    admin: str
    reader: str

    def link(self, *parts: str, query: str = "") -> str:
        scope = self.environment
        path = "/".join(
            ["e", scope.organization, scope.project, scope.environment, *parts],
        )
        return f"{self.url}/#/{path}{'?' + query if query else ''}"


@dataclass(frozen=True, kw_only=True)
class World:
    site: Site
    broker: RedisBroker
    warehouse: ClickHouseConnection

    async def define(self, name: str, *, concurrency: int | None = None) -> None:
        spec = QueueSpec(name=name, concurrency=concurrency, delivery=DeliveryPolicy(max_attempts=1))
        await self.broker.define(self.site.environment.queue(name), spec)

    async def push(self, name: str, count: int) -> list[MessageId]:
        messages = [NewMessage(payload=b"{}") for _ in range(count)]
        await self.broker.enqueue(self.site.environment.queue(name), messages)
        return [message.id for message in messages]

    async def state(self, name: str) -> QueueState:
        return await self.broker.state(self.site.environment.queue(name))

    async def wait_for_depth(self, name: str, depth: int) -> None:
        async with asyncio.timeout(10):
            while (await self.state(name)).depth != depth:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def kill(self, name: str, *, payload: bytes, error: str, attempts: int = 1) -> None:
        """Let one message die of `error`."""
        queue = self.site.environment.queue(name)
        await self.broker.enqueue(queue, [NewMessage(payload=payload)])
        for _ in range(attempts):
            (delivery,) = await self.broker.dequeue(queue, consumer="test")
            await self.broker.nack([Failure(lease=delivery.lease, error=error)])

    async def land(
        self,
        name: str,
        *,
        depth: int,
        acked: int,
        enqueued: int | None = None,
        at_ms: int | None = None,
        oldest_age_ms: int = 0,
        dead: int = 0,
    ) -> None:
        """A measured bucket, one minute ago unless a time is given."""
        moment = Moment(
            queue=self.site.environment.queue(name),
            at_ms=int(time.time() * 1_000) - 60_000 if at_ms is None else at_ms,
            counts={"acked": acked, "enqueued": acked if enqueued is None else enqueued, "dead": dead},
            gauges={"queue_length": depth, "oldest_age_ms": oldest_age_ms},
            waits_ms=[5, 10, 20],
        )
        await asyncio.to_thread(land_moments, self.warehouse, [moment])
