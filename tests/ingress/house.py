"""A whole house on real stores: API, specs, webhooks, worker, mover; one tenant, everything in one loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from ingress import signing
from support.secrets import fixed_secrets
from weir.api.app import create_app
from weir.api.edge import Edge
from weir.api.services import Services
from weir.broker.broker import Broker
from weir.broker.observed import Observed
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.channels.channels import Channels
from weir.control.audit_log import AuditLog
from weir.control.authentication import CachedAuthenticator
from weir.control.current_specs import CurrentSpecs
from weir.control.database import Database
from weir.control.principals import Role
from weir.control.queue_definitions import QueueDefinitions
from weir.control.sealing import SealingKeys
from weir.control.secrets import Secrets
from weir.control.spec_register import SpecRegister
from weir.control.system_events import SystemEvents
from weir.control.tokens import NewToken, Tokens
from weir.deadletters.copier import DeadLetterCopier
from weir.deadletters.mover import Mover
from weir.deadletters.services import open_dead_letters
from weir.exchange.admit import AnsweringPusher, AnswerTally
from weir.exchange.attempt import DirectPusher
from weir.exchange.lineage import ChainedMessages
from weir.exchange.seam import Pusher, Settler
from weir.exchange.settle import DirectSettler
from weir.exchange.traced import TracedPusher, TracedSettler
from weir.ingress.receive import Receiver
from weir.ingress.synchronous import SynchronousCommands
from weir.lineage.children import PostgresChildren
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.clock import Clock, SystemClock
from weir.model.names import EnvironmentRef
from weir.outbound.address_guard import GuardPolicy, guarded_client
from weir.outbound.addresses import parse_networks
from weir.outbound.delivery_log import PostgresDeliveryLog
from weir.schedules.register import Schedules
from weir.tracing.tracer import Tracer
from weir.worker import Commands
from weir.workers.hook_keys import PostgresHookKeys
from weir.workers.journal import PostgresJournal
from weir.workers.run_message import Tools
from weir.workers.threads import DaemonThreads
from weir.workers.timeline import Timelines
from weir.workers.worker import Worker, WorkerOptions

SECRET = "a secret that is long enough"


@dataclass
class House:
    """Everything in reach of a test."""

    environment: EnvironmentRef
    database: Database
    broker: Broker
    specs: SpecRegister
    registry: CurrentSpecs
    commands: Commands
    journal: PostgresJournal
    services: Services
    app: Edge
    client: httpx2.AsyncClient
    secrets: dict[str, str] = field(default_factory=dict)
    store: Secrets | None = None
    """The stored secrets, which a house with keys uses instead."""
    tracer: Tracer | None = None
    children: PostgresChildren | None = None
    front: Pusher | None = None
    """What webhooks go through."""

    async def apply(self, text: str) -> None:
        response = await self.client.put("/api/v1/spec", json={"source": text})
        assert response.status_code == 200, response.text
        await self.registry.refresh()

    async def hook(self, name: str, body: Any, **headers: str) -> httpx2.Response:
        """A webhook signed in the plain way, unless the headers say otherwise."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        signed = {
            "content-type": "application/json",
            **signing.plain(SECRET, data, int(time.time())),
            **named,
        }
        return await self.client.post(f"/hook/{name}", content=data, headers=signed)

    async def depth(self, queue: str) -> int:
        return (await self.broker.state(self.environment.queue(queue))).depth

    @asynccontextmanager
    async def working(self, *, clock: Clock | None = None, **options: Any) -> AsyncIterator[Worker]:
        """A worker, its journal and the mover, while the block runs."""
        async with guarded_client(GuardPolicy(allowed=parse_networks(["127.0.0.0/8"]))) as client:
            log = PostgresDeliveryLog(self.database, flush_every_s=0.02)
            tools = Tools(
                broker=self.broker,
                commands=self.commands,
                clock=clock or SystemClock(),
                secrets=self.store.of if self.store else fixed_secrets(self.secrets, of=self.environment),
                client=client,
                log=log,
                executor=DaemonThreads(),
                tracer=self.tracer,
                children=self.children,
            )
            chosen = {"name": "worker-1", "wait_ms": 100, "drain_s": 2.0, "environment": self.environment}
            worker = Worker(tools, self.registry, self.journal, WorkerOptions(**{**chosen, **options}))
            tasks = [
                asyncio.create_task(run())
                for run in (
                    worker.run,
                    self.journal.run,
                    log.run,
                    Mover(self.broker, self.database).run,
                    DeadLetterCopier(self.broker, self.database).run,
                    self._sweep,
                    *(() if self.children is None else (self.children.run,)),
                )
            ]
            try:
                yield worker
            finally:
                await cancel_and_wait(tasks)

    async def _sweep(self) -> None:
        while True:
            for shard in range(self.broker.shards):
                await self.broker.sweep(shard)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def open_house(
    environment: EnvironmentRef,
    database: Database,
    redis_url: str,
    *,
    tracer: Tracer | None = None,
    trace_url: str | None = None,
    keys: SealingKeys | None = None,
) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        broker = Observed(RedisBroker(RedisConnection(url=redis_url)), tracer=tracer)
        stack.push_async_callback(broker.aclose)
        specs = SpecRegister(database, broker, companions=(Channels(database).follow,))
        registry, commands, secrets = CurrentSpecs(database), Commands(), {"HOOK": SECRET}
        store = Secrets(database, keys) if keys else None
        front = DirectPusher(broker)
        children = PostgresChildren(database)
        chained = ChainedMessages(children, clock=SystemClock())
        pusher: Pusher = AnsweringPusher(front, AnswerTally(), chained=chained)
        settler: Settler = DirectSettler(broker)
        if tracer is not None:
            pusher, settler = TracedPusher(pusher, tracer), TracedSettler(settler, tracer)
        synchronous = SynchronousCommands(commands, executor=DaemonThreads(), keys=PostgresHookKeys(database))
        tokens = Tokens(database)
        services = Services(
            broker=broker,
            authenticator=CachedAuthenticator(tokens, fresh_s=0),
            pusher=pusher,
            settler=settler,
            tokens=tokens,
            definitions=QueueDefinitions(database),
            changes=specs.changes,
            dead_letters=open_dead_letters(database, broker),
            channels=Channels(database),
            schedules=Schedules(database, broker),
            receiver=Receiver(
                registry,
                front,
                secrets=store.of if store else fixed_secrets(secrets, of=environment),
                commands=synchronous,
                tracer=tracer,
            ),
            specs=specs,
            secrets=store,
            audit=None if store is None else AuditLog(database),
            events=SystemEvents(database=database),
            timelines=Timelines(database, broker),
            trace_url=trace_url,
            writes_spans=tracer is not None,
        )
        app = create_app(services)
        token, _ = await tokens.create(
            NewToken(
                name="test",
                role=Role.ADMIN,
                organization=environment.organization,
                project=environment.project,
                environment=environment.environment,
            )
        )
        client = await stack.enter_async_context(
            httpx2.AsyncClient(
                transport=httpx2.ASGITransport(app=app),
                base_url="http://weir",
                headers={"authorization": f"Bearer {token}"},
            )
        )
        yield House(
            environment=environment,
            database=database,
            broker=broker,
            specs=specs,
            registry=registry,
            commands=commands,
            journal=PostgresJournal(database, flush_every_s=0.02),
            services=services,
            app=app,
            client=client,
            secrets=secrets,
            store=store,
            tracer=tracer,
            children=children,
            front=front,
        )
