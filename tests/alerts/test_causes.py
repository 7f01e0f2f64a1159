"""Every cause, produced by a real run of the broker: Redis, PostgreSQL and ClickHouse, and named rightly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from redis.asyncio import Redis

from support.history import Moment, land_gap, land_moments
from support.urls import with_database
from support.warehouse_template import WarehouseTemplate
from weir.alerts.alert_records import AlertRecords
from weir.alerts.causes import explain
from weir.alerts.evaluation_writer import load_memories
from weir.alerts.evaluator import Evaluator
from weir.alerts.forecast import Outlook, outlook_of
from weir.alerts.lease import EvaluatorLease
from weir.alerts.machine import AlertStatus
from weir.alerts.rule import draft_of
from weir.alerts.rules import AlertRules
from weir.alerts.situations import DefinedLifetimes, Situations
from weir.alerts.verdict import Cause, Verdict
from weir.broker.metrics_switch import MetricsSwitch
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.deadletters.mover import Mover
from weir.model.clock import SystemClock
from weir.model.durations import DAY_MS
from weir.model.message import Delivery, Failure, NewMessage
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.shards import shard_of
from weir.outbound.delivery_log import PostgresDeliveryLog
from weir.redis_client import connect
from weir.spec.ir import DeliverTo, DeliveryPolicy, MapToCommand, QueueSpec
from weir.telemetry.codec import unpack
from weir.telemetry.events import QUEUE, QUEUE_COUNTERS, STREAM_FIELD
from weir.telemetry.live_workers import AliveSignal, LiveWorker, LiveWorkers, QueueLoad
from weir.telemetry.streams import stream_key, switch_key
from weir.telemetry.tails import RedisTails
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.reading.warehouse import Warehouse, open_warehouse
from weir.workers.journal import AttemptRecord, PostgresJournal

SHARDS = 4
RECENT_MS = 15_000


def tenant_of_shard(shard: int) -> EnvironmentRef:
    while True:
        environment = EnvironmentRef(organization=f"o{uuid4().hex}", project="p", environment="e")
        if shard_of(environment, shards=SHARDS) == shard:
            return environment


class House:
    """A queue on real stores, and telemetry that is carried by hand."""

    def __init__(
        self,
        broker: RedisBroker,
        redis: Redis,
        database: Database,
        warehouse: Warehouse,
        *,
        redis_url: str,
        clickhouse_url: str,
    ) -> None:
        self.redis_url = redis_url
        self.broker, self.redis, self.database, self.warehouse = broker, redis, database, warehouse
        self.connection = ClickHouseConnection(clickhouse_url)
        # The servers are shared, so the tenant must fall into a shard that no other test writes to.
        self.environment = next(
            environment
            for environment in (
                EnvironmentRef(organization=f"o{uuid4().hex}", project="p", environment="e")
                for _ in range(999)
            )
            if shard_of(environment, shards=SHARDS) == 3
        )
        self.queue = self.environment.queue("q")
        self._read = b"-"
        self.situations = Situations(
            warehouse, broker, database, clock=SystemClock(), workers=LiveWorkers(redis)
        )

    async def define(self, **spec: Any) -> QueueRef:
        made = QueueSpec(name="q", **spec)
        await self.broker.define(self.queue, made)
        await QueueDefinitions(self.database).define(self.queue, made)
        return self.queue

    async def push(self, count: int) -> None:
        await self.broker.enqueue(self.queue, [NewMessage(payload=b"x") for _ in range(count)])

    async def take(self, count: int) -> list[Delivery]:
        return await self.broker.dequeue(self.queue, consumer="worker", limit=count)

    async def finish(self, deliveries: list[Delivery]) -> None:
        await self.broker.ack([one.lease for one in deliveries])

    async def fail(self, deliveries: list[Delivery], error: str) -> None:
        await self.broker.nack([Failure(lease=one.lease, error=error) for one in deliveries])

    async def bury(self) -> None:
        """Carry the dead to PostgreSQL."""
        mover = Mover(self.broker, self.database)
        while await mover.run_round():
            pass

    async def land(self, *, ago_ms: int = 0) -> None:
        """Carry telemetry to the warehouse, as if it had happened so long ago."""
        entries = await self.redis.xrange(stream_key("queue", 3), min=self._read)
        moments = [_moment(entry_id, fields, ago_ms) for entry_id, fields in entries]
        if entries:
            self._read = b"(" + entries[-1][0]
        land_moments(
            self.connection, [one for one in moments if one.queue.scope == self.environment], shard=3
        )

    async def land_nothing(self) -> None:
        """Lose the telemetry that was written so far."""
        entries = await self.redis.xrange(stream_key("queue", 3), min=self._read)
        if entries:
            self._read = b"(" + entries[-1][0]

    @asynccontextmanager
    async def metrics_off(self) -> AsyncIterator[None]:
        switch = MetricsSwitch(RedisConnection(url=self.redis_url), shards=SHARDS)
        try:
            await switch.switch(on=False, by="a test", reason="to see what happens")
            yield
        finally:
            await switch.switch(on=True, by="a test", reason="")
            await self.redis.delete(*(switch_key(shard) for shard in range(SHARDS)))
            await switch.aclose()

    def evaluator(self) -> Evaluator:
        return Evaluator(
            database=self.database,
            warehouse=self.warehouse,
            broker=self.broker,
            lifetimes=DefinedLifetimes(self.database),
            # Tests share the database, and so the lease.
            lease=EvaluatorLease(self.database, holder="tests"),
        )

    async def explain(self) -> Verdict:
        return explain(await self.situations.of(self.queue, recent_ms=RECENT_MS))

    async def forecast(self) -> Outlook:
        return outlook_of(await self.situations.of(self.queue, recent_ms=RECENT_MS), ttl_ms=None)

    async def land_another_queue(self) -> None:
        """Carry the telemetry of another queue alone, and leave the shard behind."""
        await self.land_nothing()
        other = self.environment.queue("other")
        await self.broker.define(other, QueueSpec(name="other"))
        await self.broker.enqueue(other, [NewMessage(payload=b"x")])
        await self.land()
        await self.broker.enqueue(other, [NewMessage(payload=b"x")])

    async def map_to_command(self, **spec: Any) -> None:
        """Define the queue as one that workers serve."""
        await self.define(action=MapToCommand(entity="Thing", command="Do"), **spec)

    async def note_worker(
        self, *, slots: int = 2, free_slots: int = 0, held: int = 0, handling: int = 0
    ) -> None:
        """A worker of the queue says that it is alive."""
        load = QueueLoad(queue=self.queue, held=held, running=handling, running_ms=100 * handling)
        worker = LiveWorker(slots=slots, free_slots=free_slots, environment=self.environment, loads=(load,))
        await AliveSignal(self.redis, worker_id=uuid4().hex, look=lambda: worker).write()

    async def record(
        self, deliveries: list[Delivery], *, took_ms: int, error: str = "", ago_ms: int = 0
    ) -> None:
        """Write attempts down, as the worker that made them would."""
        journal, finished_at_ms = PostgresJournal(self.database), SystemClock().now_ms() - ago_ms
        for delivery in deliveries:
            journal.record(
                AttemptRecord(
                    delivery=delivery,
                    worker="worker",
                    started_at_ms=finished_at_ms - took_ms,
                    finished_at_ms=finished_at_ms,
                    ending="failed" if error else "done",
                    error=error,
                )
            )
        await journal.flush()


def _moment(entry_id: bytes, fields: dict[bytes, bytes], ago_ms: int) -> Moment:
    event = unpack(QUEUE, fields[STREAM_FIELD.encode()])
    at_ms, sequence = (int(part) for part in entry_id.split(b"-"))
    organization, project, environment, queue = event.dimensions
    return Moment(
        queue=QueueRef(organization=organization, project=project, environment=environment, queue=queue),
        at_ms=at_ms - ago_ms,
        sequence=sequence,
        counts={name: event.values[name] for name in QUEUE_COUNTERS},
        gauges={name: value for name, value in event.values.items() if name not in QUEUE_COUNTERS},
        odometers={name: event.values[f"{name}_total"] for name in QUEUE_COUNTERS},
        waits_ms=event.samples,
    )


@pytest.fixture(scope="module")
def shared_url(warehouses: WarehouseTemplate) -> Iterator[str]:
    """A warehouse that tests share: each has a tenant of its own."""
    with warehouses.copied() as url:
        yield url


@pytest.fixture(scope="module")
def database_url(postgres_url: str, migrated_template: str) -> Iterator[str]:
    """A database that tests share, for the same reason."""
    name = f"t_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {migrated_template} STRATEGY FILE_COPY")
    yield with_database(postgres_url, name)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def house_on(redis_url: str, database: Database, url: str) -> AsyncIterator[House]:
    broker = RedisBroker(RedisConnection(url=redis_url), shards=SHARDS)
    redis = connect(redis_url)
    tails = RedisTails(redis, shards=SHARDS)
    warehouse = open_warehouse(url, tails=tails, shards=SHARDS, freshness_max_age_ms=0)
    house = House(broker, redis, database, warehouse, redis_url=redis_url, clickhouse_url=url)
    await redis.delete(stream_key("queue", 3))
    yield house
    house.connection.close()
    await warehouse.aclose()
    await redis.aclose()
    await broker.aclose()


@pytest.fixture
async def house(redis_url: str, database: Database, shared_url: str) -> AsyncIterator[House]:
    async for house in house_on(redis_url, database, shared_url):
        yield house


@pytest.fixture
async def lone_house(redis_url: str, database: Database, warehouse_url: str) -> AsyncIterator[House]:
    """A house whose telemetry nobody else carries."""
    async for house in house_on(redis_url, database, warehouse_url):
        yield house


async def test_a_paused_queue(house: House) -> None:
    await house.define()
    await house.push(5)
    await house.broker.pause(house.queue)
    await house.land()
    assert (await house.explain()).cause is Cause.PAUSED


async def test_nobody_takes(house: House) -> None:
    await house.define()
    await house.push(5)
    await house.land()
    assert (await house.explain()).cause is Cause.NO_WORKERS


async def test_a_limit_is_reached(house: House) -> None:
    await house.define(concurrency=2)
    await house.push(10)
    assert len(await house.take(5)) == 2
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is Cause.LIMIT_REACHED
    assert (verdict.evidence["limit_of"], verdict.evidence["limit"]) == ("queue", 2)


async def test_the_limit_of_the_environment_is_reached(house: House) -> None:
    await house.define()
    await house.broker.limit(house.environment, 3)
    await house.push(10)
    assert len(await house.take(5)) == 3
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is Cause.LIMIT_REACHED
    assert verdict.evidence["limit_of"] == "environment"


async def test_more_arrives_than_ever(house: House) -> None:
    await house.define()
    for ago_ms in (60_000, 45_000, 30_000, 20_000):
        await house.push(5)
        await house.finish(await house.take(5))
        await house.land(ago_ms=ago_ms)
    await house.push(300)
    await house.finish(await house.take(20))
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is Cause.ARRIVAL_SPIKE, verdict.summary


async def test_time_of_which_nothing_is_known_does_not_lower_the_usual(lone_house: House) -> None:
    house = lone_house
    await house.define()
    for ago_ms in (100_000, 97_000, 94_000, 91_000):
        await house.push(5)
        await house.finish(await house.take(5))
        await house.land(ago_ms=ago_ms)
    await house.push(1)
    await house.land()
    now_ms = SystemClock().now_ms()
    before = (await house.situations.of(house.queue, recent_ms=RECENT_MS)).before
    # Two gaps that overlap, and one of another shard.
    for start_ms, end_ms, shard in ((90_000, 50_000, 3), (70_000, 25_000, 3), (100_000, 0, 2)):
        land_gap(house.connection, start_ms=now_ms - start_ms, end_ms=now_ms - end_ms, shard=shard)
    house.warehouse.gaps._read_ms = -1_000
    known = (await house.situations.of(house.queue, recent_ms=RECENT_MS)).before
    assert before is not None
    assert known is not None
    assert known.counts == before.counts
    assert known.span_ms == pytest.approx(before.span_ms - 65_000, abs=8_000)


async def test_handlers_became_slow(house: House) -> None:
    await house.define(concurrency=4)
    for ago_ms in (60_000, 45_000, 30_000, 20_000):
        await house.push(20)
        await house.finish(await house.take(4))
        await house.land(ago_ms=ago_ms)
    await house.take(4)
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is Cause.SLOW_HANDLERS, verdict.summary
    assert [one.cause for one in verdict.also] == [Cause.LIMIT_REACHED]


async def test_some_messages_are_poison(house: House) -> None:
    await house.define(delivery=DeliveryPolicy(max_attempts=1))
    await house.push(30)
    await house.finish(await house.take(15))
    await house.fail(await house.take(5), "ValueError: column `total` is not a number")
    await house.bury()
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is Cause.POISON_MESSAGES, verdict.summary
    assert "column `total`" in verdict.evidence["errors"][0]["error"]


async def test_the_downstream_refuses(house: House) -> None:
    await house.define(delivery=DeliveryPolicy(max_attempts=1))
    await house.push(30)
    await house.fail(await house.take(20), "the endpoint answered 503")
    await house.bury()
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is Cause.DOWNSTREAM_REFUSING, verdict.summary


async def test_lapsed_leases_of_a_queue_that_nobody_asks_are_not_poison(house: House) -> None:
    await house.define()
    await house.push(5)
    await house.broker.dequeue(house.queue, consumer="gone", limit=5, lease_ms=100)
    await house.land(ago_ms=25_000)
    async with asyncio.timeout(10):
        while (await house.broker.state(house.queue)).running:
            await house.broker.sweep(3)
    await house.push(8)
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is Cause.NO_WORKERS, verdict.summary
    assert (verdict.evidence["depth"], verdict.evidence["lapsed"]) == (13, 5)


async def test_the_leases_of_workers_that_are_gone_are_no_limit_and_no_spike(house: House) -> None:
    await house.map_to_command(concurrency=2)
    for ago_ms in (60_000, 45_000, 30_000):
        await house.push(3)
        await house.finish(await house.take(2))
        await house.land(ago_ms=ago_ms)
    await house.take(2)
    await house.land(ago_ms=25_000)
    await house.push(300)
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is Cause.NO_WORKERS, verdict.summary
    assert "2 more are still leased" in verdict.summary
    await house.note_worker(held=2, handling=2)
    assert (await house.explain()).cause is not Cause.NO_WORKERS


async def test_attempts_of_workers_that_are_refused_and_retry_are_not_poison(house: House) -> None:
    await house.map_to_command(delivery=DeliveryPolicy(max_attempts=20, initial_backoff_ms=60_000))
    await house.note_worker(free_slots=2)
    await house.push(44)
    failed = await house.take(44)
    error = "ConnectionRefusedError: [Errno 111] Connection refused"
    await house.fail(failed, error)
    await house.record(failed, took_ms=5, error=error)
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is Cause.DOWNSTREAM_REFUSING, verdict.summary
    assert verdict.evidence["errors"] == [{"error": error, "count": 44}]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("ConnectionRefusedError: [Errno 111] Connection refused", Cause.DOWNSTREAM_REFUSING),
        ("KeyError: 'total'", Cause.HANDLERS_FAILING),
    ],
)
async def test_what_a_consumer_over_http_says_of_its_attempts_is_heard(
    house: House, error: str, cause: Cause
) -> None:
    await house.define(delivery=DeliveryPolicy(max_attempts=20, initial_backoff_ms=60_000))
    await house.push(20)
    await house.fail(await house.take(20), error)
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is cause, verdict.summary
    assert verdict.evidence["errors"] == [{"error": error, "count": 20}]


async def test_leases_lapse_while_others_work(house: House) -> None:
    await house.define()
    await house.push(30)
    await house.broker.dequeue(house.queue, consumer="gone", limit=5, lease_ms=100)
    async with asyncio.timeout(10):
        while (await house.broker.state(house.queue)).running:
            await house.broker.sweep(3)
    await house.finish(await house.take(15))
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is Cause.LEASES_LAPSED, verdict.summary


async def test_handlers_of_workers_became_slow(house: House) -> None:
    await house.map_to_command()
    await house.push(60)
    usual = await house.take(20)
    await house.finish(usual)
    await house.record(usual, took_ms=50, ago_ms=40_000)
    await house.land(ago_ms=40_000)
    slow = await house.take(10)
    await house.finish(slow)
    await house.record(slow, took_ms=2_000)
    await house.note_worker(held=4, handling=2)
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is Cause.SLOW_HANDLERS, verdict.summary
    assert verdict.summary == "handlers take 2 s, usually 0.1 s"


async def test_messages_that_were_fetched_ahead_do_not_make_handlers_slow(house: House) -> None:
    """Twelve are leased and two in handlers: a handler takes what it took, without the wait for a slot."""
    await house.map_to_command()
    await house.push(90)
    usual = await house.take(20)
    await house.finish(usual)
    await house.record(usual, took_ms=2_000, ago_ms=40_000)
    await house.land(ago_ms=40_000)
    done = await house.take(20)
    await house.finish(done[:8])
    await house.record(done[:8], took_ms=2_000)
    await house.note_worker(held=12, handling=2)
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is Cause.HEALTHY, verdict.summary
    assert (verdict.evidence["running"], verdict.evidence["handling"]) == (12, 2)


async def test_every_slot_is_busy_and_more_arrives(house: House) -> None:
    await house.map_to_command()
    await house.push(30)
    await house.finish(await house.take(10))
    await house.note_worker(slots=4, free_slots=0, held=4, handling=4)
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is Cause.TOO_FEW_WORKERS, verdict.summary
    assert "all 4 slots of 1 worker are busy" in verdict.summary


async def test_an_endpoint_that_is_disabled_keeps_its_messages(house: House) -> None:
    await house.define(action=DeliverTo(url="https://example.com/hook"))
    await PostgresDeliveryLog(house.database).disable(
        house.environment, "https://example.com/hook", now_ms=1, reason="the endpoint answered 410"
    )
    await house.push(5)
    await house.note_worker(free_slots=2)
    await house.land()
    verdict = await house.explain()
    assert verdict.cause is Cause.DOWNSTREAM_REFUSING, verdict.summary
    assert "disabled (the endpoint answered 410)" in verdict.summary


async def test_what_has_not_landed_yet_is_seen_all_the_same(house: House) -> None:
    """Telemetry is seconds behind; the odometers of the queue are not."""
    await house.define()
    await house.push(5)
    await house.land(ago_ms=10_000)
    await house.finish(await house.take(2))
    verdict = await house.explain()
    assert (verdict.cause, verdict.evidence["dequeued"]) == (Cause.HEALTHY, 2), verdict.summary


async def test_telemetry_that_is_switched_off_is_said_to_be(lone_house: House) -> None:
    await lone_house.define()
    await lone_house.push(5)
    await lone_house.land()
    async with lone_house.metrics_off():
        verdict = await lone_house.explain()
    assert verdict.cause is Cause.TELEMETRY_STALE
    assert "switched off" in verdict.summary


async def test_telemetry_is_stale(lone_house: House) -> None:
    await lone_house.define()
    await lone_house.push(5)
    await lone_house.land(ago_ms=120_000)
    verdict = await lone_house.explain()
    assert verdict.cause is Cause.TELEMETRY_STALE, verdict.summary


NOT_KNOWN = "no forecast: how fast messages arrive and leave is not known"


async def test_nothing_is_forecast_before_the_first_telemetry(lone_house: House) -> None:
    """Nothing of the shard has landed, as in the first minutes of a busy machine."""
    await lone_house.map_to_command()
    await lone_house.push(5)
    assert (await lone_house.forecast()).summary == NOT_KNOWN
    verdict = await lone_house.explain()
    assert (verdict.cause, verdict.evidence["enqueued"]) == (Cause.NO_WORKERS, None), verdict


async def test_nothing_is_forecast_for_a_queue_before_its_first_telemetry(lone_house: House) -> None:
    """The pipeline runs, and is a few seconds behind."""
    await lone_house.define()
    await lone_house.push(5)
    await lone_house.land_another_queue()
    assert (await lone_house.forecast()).summary == NOT_KNOWN
    verdict = await lone_house.explain()
    assert (verdict.cause, verdict.evidence["enqueued"]) == (Cause.TELEMETRY_STALE, None), verdict


async def test_nothing_is_forecast_while_the_pipeline_is_far_behind(lone_house: House) -> None:
    await lone_house.define()
    await lone_house.push(5)
    await lone_house.land(ago_ms=120_000)
    await lone_house.push(5)
    assert (await lone_house.forecast()).summary == NOT_KNOWN


@pytest.mark.parametrize("days", [1, 500])
async def test_a_queue_that_rested_for_long_is_known_to_rest(lone_house: House, days: int) -> None:
    """Its newest telemetry is from before the usual, or gone; its odometers say that nothing came since."""
    await lone_house.define()
    await lone_house.push(5)
    await lone_house.finish(await lone_house.take(5))
    await lone_house.land(ago_ms=days * DAY_MS)
    lone_house.connection.command("OPTIMIZE TABLE queue_metrics_1h FINAL")
    await lone_house.land_another_queue()
    assert (await lone_house.forecast()).summary == "empty now; 0/s arrive, 0/s leave"
    await lone_house.push(5)
    assert (await lone_house.forecast()).arriving_per_s


async def test_what_the_figures_do_not_say_is_unknown(house: House) -> None:
    await house.define()
    await house.push(6)
    await house.take(1)
    await house.land(ago_ms=40_000)
    await house.land_another_queue()
    verdict = await house.explain()
    assert verdict.cause is Cause.UNKNOWN, verdict.summary


async def test_a_queue_that_flows_is_healthy(house: House) -> None:
    await house.define()
    await house.push(10)
    await house.finish(await house.take(8))
    await house.land()
    assert (await house.explain()).cause is Cause.HEALTHY


async def test_an_alert_carries_its_cause_and_its_evidence(house: House) -> None:
    await house.define()
    await house.push(50)
    await house.broker.pause(house.queue)
    await house.land(ago_ms=5_000)
    await house.broker.heartbeat(3)
    await house.push(1)
    await house.land()
    rules = AlertRules(house.database)
    draft = draft_of(name="deep", metric="backlog", operator=">", threshold=10, queue="q", window_ms=5_000)
    await rules.create(house.environment, draft)
    calm = replace(draft, name="calm", threshold=1_000.0)
    await rules.create(house.environment, calm)
    outcome = await house.evaluator().evaluate_once()
    assert outcome is not None
    assert (outcome.rules, outcome.fired) == (2, 1)
    (alert,) = await AlertRecords(house.database).of(house.environment)
    assert (alert.rule["name"], alert.cause, alert.value) == ("deep", "paused", 51)
    assert alert.verdict["evidence"]["depth"] == 51


async def test_a_rule_that_names_a_queue_sees_it_though_telemetry_says_nothing_of_it(house: House) -> None:
    """Its heartbeats were lost, and those of other queues were not."""
    await house.define()
    await house.push(5)
    await house.land_nothing()
    other = house.environment.queue("other")
    await house.broker.define(other, QueueSpec(name="other"))
    await house.broker.enqueue(other, [NewMessage(payload=b"x")])
    await house.land()
    rules = AlertRules(house.database)
    for metric, threshold in (("backlog", 4), ("oldest_age", 5)):
        draft = draft_of(
            name=metric, metric=metric, operator=">", threshold=threshold, queue="q", window_ms=5_000
        )
        await rules.create(house.environment, draft)
    async with asyncio.timeout(10):
        while (await house.broker.state(house.queue)).oldest_age_ms < 100:  # noqa: ASYNC110 - in Redis
            await asyncio.sleep(0.01)
    await house.evaluator().evaluate_once()
    alerts = {alert.rule["name"]: alert for alert in await AlertRecords(house.database).of(house.environment)}
    assert alerts["backlog"].value == 5
    assert alerts["oldest_age"].value >= 100, "an age, and not the depth"


async def test_rules_are_unknown_and_never_calm_while_telemetry_is_switched_off(lone_house: House) -> None:
    house = lone_house
    await house.define()
    await house.push(50)
    await house.land(ago_ms=70_000)
    await house.push(1)
    await house.land(ago_ms=61_000)
    draft = draft_of(name="deep", metric="backlog", operator=">", threshold=10, queue="q", window_ms=5_000)
    rule = await AlertRules(house.database).create(house.environment, draft)
    async with house.metrics_off():
        await house.evaluator().evaluate_once()
    assert (await load_memories(house.database))[rule.id, "q"].memory.status is AlertStatus.UNKNOWN


async def test_a_rule_neither_fires_nor_resolves_by_a_level_that_is_not_known(lone_house: House) -> None:
    house = lone_house
    await house.define()
    await house.push(50)
    await house.land(ago_ms=5_000)
    await house.push(1)
    await house.land()
    rules = AlertRules(house.database)
    draft = draft_of(name="deep", metric="backlog", operator=">", threshold=10, queue="q", window_ms=5_000)
    deep = await rules.create(house.environment, draft)
    still = await rules.create(house.environment, replace(draft, name="still", threshold=60.0))
    await house.evaluator().evaluate_once()
    async with house.metrics_off():
        await house.push(50)
        await house.evaluator().evaluate_once()
        memories = await load_memories(house.database)
        assert {memories[rule.id, "q"].memory.status for rule in (deep, still)} == {AlertStatus.UNKNOWN}
        (alert,) = await AlertRecords(house.database).of(house.environment)
        assert (alert.rule["name"], alert.resolved_at_ms) == ("deep", None)
        lag = draft_of(name="lag", metric="pipeline_lag", operator=">", threshold=0.5, window_ms=5_000)
        rule = await rules.create(house.environment, lag)
        await house.evaluator().evaluate_once()
        assert (rule.id, "") not in await load_memories(house.database), "the pipeline is not behind"
