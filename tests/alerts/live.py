"""A stage with real stores and real worker processes, on which every cause can be made to happen.

One worker process per queue. Telemetry is carried to the warehouse by a loop of the stage, where the pipeline
would; everything else is what runs in production.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import uuid4

from redis.asyncio import Redis

from alerts.live_worker import start_worker
from support.history import Moment, land_moments
from weir.alerts.causes import explain
from weir.alerts.forecast import Outlook, outlook_of
from weir.alerts.situations import Situations
from weir.alerts.verdict import Cause, Verdict
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.control.spec_plans import SpecText
from weir.control.spec_register import SpecRegister
from weir.deadletters.mover import Mover
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.clock import SystemClock
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.redis_client import connect
from weir.serve.housekeeping import Heart, Sweeper
from weir.telemetry.codec import unpack
from weir.telemetry.events import QUEUE, QUEUE_COUNTERS, STREAM_FIELD
from weir.telemetry.live_workers import LiveWorkers
from weir.telemetry.streams import stream_key
from weir.telemetry.tails import RedisTails
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.reading.warehouse import Warehouse, open_warehouse

SHARDS = 4
SHARD = 3
RECENT_MS = 15_000
USUAL_PER_S = 12
SLOTS = 2
_DELIVERY = "max_attempts: 1000, initial_backoff_ms: 3000, max_backoff_ms: 5000"
WORKER_STARTS_S = 60.0
"""Eleven processes start on two cores that others use too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How a queue behaves. The defaults are the usual."""

    per_s: int = USUAL_PER_S
    takes_s: float = 0.05
    fails: str = ""
    paused: bool = False
    limit: int | None = None
    worker: bool = True
    thief: bool = False
    """A second consumer takes messages, lets their leases lapse and comes back for more."""
    telemetry: bool = True


WAYS = {
    Cause.HEALTHY: Ways(),
    Cause.PAUSED: Ways(paused=True),
    Cause.NO_WORKERS: Ways(worker=False),
    Cause.DOWNSTREAM_REFUSING: Ways(fails="refused"),
    Cause.HANDLERS_FAILING: Ways(fails="broken"),
    Cause.POISON_MESSAGES: Ways(fails="poison"),
    Cause.LEASES_LAPSED: Ways(thief=True),
    Cause.SLOW_HANDLERS: Ways(takes_s=1.0),
    Cause.ARRIVAL_SPIKE: Ways(per_s=10 * USUAL_PER_S),
    Cause.LIMIT_REACHED: Ways(limit=1, takes_s=0.15),
    Cause.TOO_FEW_WORKERS: Ways(per_s=round(1.6 * USUAL_PER_S), takes_s=0.15),
    Cause.TELEMETRY_STALE: Ways(telemetry=False),
}
"""What makes each cause happen. Two slots do 40 a second as usual, 13 at 150 ms and 2 at one second."""


@dataclass(slots=True)
class Actor:
    """One queue with its producer, its worker process and, at times, a thief."""

    queue: QueueRef
    ways: Ways = field(default_factory=Ways)
    process: BaseProcess | None = None


class Stage:
    def __init__(
        self,
        *,
        environment: EnvironmentRef,
        broker: RedisBroker,
        redis: Redis,
        database: Database,
        warehouse: Warehouse,
        landing: ClickHouseConnection,
        urls: dict[str, str],
        folder: Path,
    ) -> None:
        self.environment, self.broker, self.redis = environment, broker, redis
        self.database, self.warehouse = database, warehouse
        self._landing, self._urls, self._folder = landing, urls, folder
        self._definitions = QueueDefinitions(database)
        self._situations = Situations(
            warehouse, broker, database, clock=SystemClock(), workers=LiveWorkers(redis)
        )
        self._read = b"-"
        self.carries = True
        self.actors: dict[str, Actor] = {}

    async def enter(self, names: Sequence[str]) -> None:
        """Define a queue per name, each with a producer and a worker process; return when all work."""
        text = "\n".join(
            f"queue {name} {{ delivery {{ {_DELIVERY} }} map_to: command Act.Do {{}} }}" for name in names
        )
        text = f"app Stage {{ {text} }}"
        await SpecRegister(self.database, self.broker).apply(
            self.environment, SpecText(source=text, file="stage.weir"), actor="test"
        )
        for name in names:
            self.actors[name] = Actor(queue=self.environment.queue(name))
            self._write_mode(name, Ways())
        await asyncio.gather(*(self.start_worker(name) for name in names))

    async def start_worker(self, name: str) -> None:
        queue, log = self.actors[name].queue, self._folder / f"{name}.log"
        environ = {**self._urls, "LIVE_MODES": str(self._folder)}
        process = await asyncio.to_thread(start_worker, queue, slots=SLOTS, environ=environ, log=log)
        self.actors[name].process = process
        workers = LiveWorkers(self.redis)
        async with asyncio.timeout(WORKER_STARTS_S):
            while not any(one.takes(queue) for one in await workers.alive()):
                assert process.is_alive(), log.read_text()[-2_000:]
                await asyncio.sleep(0.1)

    async def kill_worker(self, name: str) -> None:
        process = self.actors[name].process
        assert process is not None
        process.kill()
        await asyncio.to_thread(process.join)
        self.actors[name].process = None

    async def become(self, name: str, ways: Ways) -> None:
        """Let a queue behave in another way from now on."""
        actor = self.actors[name]
        before, actor.ways = actor.ways, ways
        self._write_mode(name, ways)
        if ways.paused != before.paused:
            await (self.broker.pause(actor.queue) if ways.paused else self.broker.resume(actor.queue))
        if ways.limit != before.limit:
            definition = await self._definitions.find(actor.queue)
            assert definition is not None
            spec = replace(definition.spec, concurrency=ways.limit)
            await self._definitions.define(actor.queue, spec)
            await self.broker.define(actor.queue, spec)
        if ways.worker and actor.process is None:
            await self.start_worker(name)
        elif not ways.worker and actor.process is not None:
            await self.kill_worker(name)
        if not ways.telemetry or not before.telemetry:
            self.carries = ways.telemetry

    async def verdict(self, name: str) -> Verdict:
        return explain(await self._situations.of(self.actors[name].queue, recent_ms=RECENT_MS))

    async def outlook(self, name: str) -> Outlook:
        return outlook_of(await self._situations.of(self.actors[name].queue), ttl_ms=None)

    async def told(self, name: str, cause: Cause, *, within_s: float) -> Verdict:
        """Wait until a cause is told; what was told instead if that takes too long."""
        said: list[str] = []
        verdict: Verdict | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while verdict is None or verdict.cause is not cause:
                    verdict = await self.verdict(name)
                    said.append(f"{verdict.cause}: {verdict.summary}")
                    await asyncio.sleep(0.5)
        assert verdict is not None
        assert verdict.cause is cause, f"`{name}` did not tell {cause}: {list(dict.fromkeys(said))}"
        return verdict

    # loops

    async def produce(self) -> None:
        """Push to every queue at its rate. What a busy machine is late with is pushed with the next batch."""
        owed: dict[str, float] = {}
        last = time.monotonic()
        while True:
            passed_s, last = time.monotonic() - last, time.monotonic()
            for name, actor in list(self.actors.items()):
                owed[name] = owed.get(name, 0.0) + actor.ways.per_s * passed_s
                count, owed[name] = int(owed[name]), owed[name] % 1
                if count:
                    await self.broker.enqueue(actor.queue, [NewMessage(payload=b"{}") for _ in range(count)])
            await asyncio.sleep(0.1)

    async def steal(self) -> None:
        """Take messages of queues that have a thief, and let the leases lapse."""
        while True:
            thieves = [actor.queue for actor in self.actors.values() if actor.ways.thief]
            await asyncio.gather(*(self._steal(queue) for queue in thieves))
            await asyncio.sleep(0.1)

    async def _steal(self, queue: QueueRef) -> None:
        await self.broker.dequeue(queue, consumer="thief", limit=2, lease_ms=300, wait_ms=300)

    async def carry(self) -> None:
        """Land telemetry and bury the dead, as the pipeline and the mover would."""
        mover = Mover(self.broker, self.database)
        while True:
            if self.carries:
                await self._land()
            await mover.run_round()
            await asyncio.sleep(0.5)

    async def _land(self) -> None:
        entries = await self.redis.xrange(stream_key("queue", SHARD), min=self._read)
        if entries:
            moments = [_moment(entry_id, fields) for entry_id, fields in entries]
            own = [one for one in moments if one.queue.scope == self.environment]
            await asyncio.to_thread(land_moments, self._landing, own, shard=SHARD)
            self._read = b"(" + entries[-1][0]

    def _write_mode(self, name: str, ways: Ways) -> None:
        path = self._folder / name
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({"takes_s": ways.takes_s, "fails": ways.fails}))
        fresh.replace(path)

    async def leave(self) -> None:
        for name, actor in self.actors.items():
            if actor.process is not None:
                await self.kill_worker(name)


def _moment(entry_id: bytes, fields: dict[bytes, bytes]) -> Moment:
    event = unpack(QUEUE, fields[STREAM_FIELD.encode()])
    at_ms, sequence = (int(part) for part in entry_id.split(b"-"))
    organization, project, environment, queue = event.dimensions
    return Moment(
        queue=QueueRef(organization=organization, project=project, environment=environment, queue=queue),
        at_ms=at_ms,
        sequence=sequence,
        counts={name: event.values[name] for name in QUEUE_COUNTERS},
        gauges={name: value for name, value in event.values.items() if name not in QUEUE_COUNTERS},
        odometers={name: event.values[f"{name}_total"] for name in QUEUE_COUNTERS},
        waits_ms=event.samples,
    )


def tenant_of_shard(shard: int) -> EnvironmentRef:
    """The servers are shared, so the tenant must fall into a shard that no other test writes to."""
    while True:
        environment = EnvironmentRef(organization=f"o{uuid4().hex}", project="p", environment="e")
        if shard_of(environment, shards=SHARDS) == shard:
            return environment


@asynccontextmanager
async def staged(*, redis: str, postgres: str, clickhouse: str, folder: Path) -> AsyncIterator[Stage]:
    """A stage on these servers, with its loops running and no queue yet."""
    async with AsyncExitStack() as stack:
        broker = RedisBroker(RedisConnection(url=redis), shards=SHARDS)
        stack.push_async_callback(broker.aclose)
        client: Any = connect(redis)
        stack.push_async_callback(client.aclose)
        database = await stack.enter_async_context(Database(postgres))
        warehouse = open_warehouse(clickhouse, tails=RedisTails(client, shards=SHARDS), shards=SHARDS)
        stack.push_async_callback(warehouse.aclose)
        landing = ClickHouseConnection(clickhouse)
        stack.callback(landing.close)
        await client.delete(stream_key("queue", SHARD))
        stage = Stage(
            environment=tenant_of_shard(SHARD),
            broker=broker,
            redis=client,
            database=database,
            warehouse=warehouse,
            landing=landing,
            urls={
                "WEIR_REDIS_URL": redis,
                "WEIR_POSTGRES_URL": postgres,
                "WEIR_CLICKHOUSE_URL": clickhouse,
                "WEIR_SHARDS": str(SHARDS),
            },
            folder=folder,
        )
        stack.push_async_callback(stage.leave)
        loops = (stage.produce, stage.steal, stage.carry, Sweeper(broker).run, Heart(broker).run)
        tasks = [asyncio.create_task(loop()) for loop in loops]
        stack.push_async_callback(cancel_and_wait, tasks)
        yield stage
        for task in tasks:
            if task.done():
                task.result()
