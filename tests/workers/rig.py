"""A worker on the memory broker, with everything around it in reach of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from support.secrets import fixed_secrets
from support.workers import FixedSpecs, MemoryDeliveryLog, MemoryJournal
from weir.broker.broker import Broker
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.clock import SystemClock
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.outbound.address_guard import GuardPolicy, guarded_client
from weir.outbound.addresses import parse_networks
from weir.spec.ir import AppSpec
from weir.spec.language import read_spec
from weir.spec.snapshot import EnvironmentNews, SpecSnapshot, with_news
from weir.testing.memory import MemoryBroker
from weir.worker import Commands
from weir.workers.run_message import Tools
from weir.workers.threads import DaemonThreads
from weir.workers.worker import Worker, WorkerOptions

LOOPBACK = GuardPolicy(allowed=parse_networks(["127.0.0.0/8"]))


@dataclass
class Rig:
    """Queues of one environment, and the parts of a worker on them."""

    environment: EnvironmentRef
    broker: Broker = field(default_factory=MemoryBroker)
    commands: Commands = field(default_factory=Commands)
    log: MemoryDeliveryLog = field(default_factory=MemoryDeliveryLog)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    secrets: dict[str, str] = field(default_factory=dict)
    specs: FixedSpecs = field(default_factory=lambda: FixedSpecs(SpecSnapshot()))

    async def apply(self, text: str) -> None:
        app = read_spec(text)
        for queue in app.queues:
            await self.broker.define(self.environment.queue(queue.name), queue)
        self.specs.snapshot = snapshot_of(self.environment, app)

    async def put(self, queue: str, *payloads: bytes, **options: Any) -> list[str]:
        messages = [NewMessage(payload=payload, **options) for payload in payloads]
        answers = await self.broker.enqueue(self.environment.queue(queue), messages)
        return [answer.message_id for answer in answers]

    def tools(self, client: httpx2.AsyncClient) -> Tools:
        return Tools(
            broker=self.broker,
            commands=self.commands,
            clock=SystemClock(),
            secrets=fixed_secrets(self.secrets, of=self.environment),
            client=client,
            log=self.log,
            executor=DaemonThreads(),
        )

    @asynccontextmanager
    async def working(self, *, policy: GuardPolicy = LOOPBACK, **options: Any) -> AsyncIterator[Worker]:
        """A worker that runs while the block does, and has drained when it is left."""
        async with guarded_client(policy) as client:
            chosen = WorkerOptions(**{"name": "worker-1", "drain_s": 2.0, "wait_ms": 50, **options})
            worker = Worker(self.tools(client), self.specs, self.journal, chosen)
            task = asyncio.create_task(worker.run())
            try:
                yield worker
            finally:
                await cancel_and_wait([task])

    def endings(self) -> list[str]:
        return [attempt.ending for attempt in self.journal.attempts]

    async def outbox(self) -> list[Any]:
        found = []
        for shard in range(self.broker.shards):
            found += await self.broker.take_dead(shard)
        return found


def snapshot_of(environment: EnvironmentRef, app: AppSpec) -> SpecSnapshot:
    """The snapshot of one environment with this spec."""
    queues = {queue.name: queue for queue in app.queues}
    hooks = frozenset(webhook.name for webhook in app.webhooks)
    news = EnvironmentNews(
        environment=environment, app=app, hooks=hooks, names=frozenset(queues), queues=queues
    )
    return with_news(SpecSnapshot(), [news])
