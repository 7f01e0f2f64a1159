"""Processes report about themselves what the stores, asked by another way, know about them."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from api.harness import Tenant, define, make_tenant
from support.api_process import ApiProcess
from support.history import land_worker
from support.servers import RunningServer, redis_server, start_server
from support.waiting import until
from weir.api.app import create_app
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.cli.worker import work
from weir.control.database import Database
from weir.control.tokens import Tokens
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.durations import MINUTE_MS
from weir.redis_client import connect
from weir.serve.bootstrap import ADMIN, keep_token
from weir.serve.build import Process, open_process
from weir.settings import EmbeddedSettings, Settings, StoreUrls, WorkerSettings
from weir.spec.ir import DeliveryPolicy, Retention
from weir.telemetry.codec import MetricEvent, unpack
from weir.telemetry.events import STREAM_FIELD, WORKER
from weir.telemetry.streams import stream_key
from weir.warehouse.connection import ClickHouseConnection
from weir.workers.worker import WorkerOptions

SHARDS = Settings().shards
SPEC = """
app Metrics {
  queue jobs {
    message_type { kind: string }
    delivery { max_attempts: 2, initial_backoff: 60s }
    map_to: command Work.Do { kind: kind }
  }
}
"""


@dataclass(frozen=True, kw_only=True)
class House:
    """An API process on a Redis of its own, and one tenant."""

    urls: StoreUrls
    settings: Settings
    process: Process
    tenant: Tenant

    async def post(self, path: str, document: object) -> tuple[int, dict[str, object]]:
        answer = await self.tenant.client.post(f"/api/v1/{path}", json=document)
        return answer.status_code, answer.json()

    async def pop(self, queue: str, *, limit: int = 100) -> list[dict[str, object]]:
        _, document = await self.post("pop", {"queue": queue, "limit": limit})
        return document["messages"]  # type: ignore[return-value]

    async def settle(self, verb: str, message: dict[str, object], **more: object) -> int:
        document = {"queue": message["queue"], "id": message["id"], "lease": message["lease"], **more}
        return (await self.post(verb, document))[0]

    async def totals(self) -> Counter[str]:
        """The odometers of all queues: what Redis counted."""
        broker = RedisBroker(RedisConnection(url=self.urls.redis), shards=self.settings.shards)
        try:
            found: Counter[str] = Counter()
            for state in await broker.states(self.tenant.environment):
                found.update(state.odometers)
            return found
        finally:
            await broker.aclose()

    async def exposed(self) -> dict[str, float]:
        """What the process tells Prometheus about itself."""
        sources = self.process.services.metric_sources
        families = [family for source in sources async for family in source()]
        return {
            sample.name: sample.value
            for family in families
            for sample in family.samples
            if sample.name.startswith("weir_process_")
        }

    async def reported(self, role: str) -> Counter[str]:
        """The sums of the events that processes of a role sent."""
        found: Counter[str] = Counter()
        for _, event in await reports(self.urls.redis, shards=self.settings.shards):
            if event.dimensions[0] == role:
                found.update(event.values)
        return found


async def reports(redis_url: str, *, shards: int) -> list[tuple[int, MetricEvent]]:
    """Every event about a process in the streams, with the time of its entry."""
    redis = connect(redis_url)
    try:
        found = []
        for shard in range(shards):
            for entry, fields in await redis.xrange(stream_key(WORKER.name, shard)):
                at_ms = int(entry.partition(b"-")[0])
                found.append((at_ms, unpack(WORKER, fields[STREAM_FIELD.encode()])))
        return found
    finally:
        await redis.aclose()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RunningServer]:
    server = start_server(lambda port: redis_server(tmp_path / "redis", port=port), log_folder=tmp_path)
    yield server
    server.stop()


@asynccontextmanager
async def serving(urls: StoreUrls, folder: Path) -> AsyncIterator[House]:
    settings = Settings(
        embedded=EmbeddedSettings(data_dir=folder), worker=WorkerSettings(app="serve.process_metrics_app:app")
    )
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(open_process(settings, urls, accept_loss=True))
        await stack.enter_async_context(process.supervisor.running())
        tenant = await make_tenant(stack, create_app(process.services), process.services)
        yield House(urls=urls, settings=settings, process=process, tenant=tenant)


@pytest.fixture
def urls(own_redis: RunningServer, database_url: str, warehouse_url: str) -> StoreUrls:
    return StoreUrls(redis=own_redis.url, postgres=database_url, clickhouse=warehouse_url)


async def test_an_api_process_counts_the_messages_that_redis_counts(urls: StoreUrls, tmp_path: Path) -> None:
    async with serving(urls, tmp_path) as house:
        services, scope = house.process.services, house.tenant.environment
        await define(services, scope, "narrow", retention=Retention(max_depth=3))
        await define(services, scope, "work", delivery=DeliveryPolicy(max_attempts=2))
        await define(services, scope, "brief", message_ttl_ms=200)
        items = [{"queue": "narrow", "payload": number} for number in range(5)]
        assert (await house.post("push", {"items": items}))[0] == 201
        assert (await house.post("push", {"items": items[:1]}))[0] == 503, "the queue is full"
        keyed = {"queue": "work", "payload": 1, "idempotency_key": "once"}
        for _ in range(2):
            assert (await house.post("push", {"items": [keyed]}))[0] == 201
        await house.post("push", {"items": [{"queue": "work", "payload": number} for number in range(9)]})
        await services.broker.pause(scope.queue("brief"))
        await house.post("push", {"items": [{"queue": "brief", "payload": 1}] * 4})
        first, second, third, fourth, *others = await house.pop("work")
        assert len(others) == 6
        assert await house.settle("ack", first) == 200
        assert await house.settle("ack", first) == 200, "it is settled already, and counted once"
        assert await house.settle("nack", second, delay_ms=0) == 200
        for _ in range(2):
            assert await house.settle("nack", third, dead_letter=True) == 200
        assert await house.settle("ack", fourth, status="failed") == 200
        batch = [{key: one[key] for key in ("queue", "id", "lease")} for one in others]
        assert (await house.post("ack/batch", {"acknowledgments": batch}))[0] == 200
        (again,) = await until(lambda: house.pop("work"))
        for _ in range(2):
            assert await house.settle("nack", again) == 200, "the last attempt: it dies"

        async def expired() -> bool:
            # Whoever finds them first: this pop, or the sweeper of the process.
            await house.pop("brief")
            return (await house.totals())["expired"] == 4

        await until(expired)
        counted = await house.totals()
        deaths = counted["dead"] + counted["expired"]

        async def heard_of_all_deaths() -> dict[str, float] | None:
            # Redis counts what the sweeper did before the sweeper has read the answer.
            found = await house.exposed()
            return found if found["weir_process_deaths_total"] >= deaths else None

        told = await until(heard_of_all_deaths)
        assert told["weir_process_deaths_total"] == deaths
        assert told["weir_process_pushes_total"] == counted["enqueued"]
        assert told["weir_process_pops_total"] == counted["dequeued"]
    reported = await house.reported("api")
    assert counted["refused"] == 3
    expected = {
        "pushes": counted["enqueued"],
        "pops": counted["dequeued"],
        "acks": counted["acked"],
        "deaths": deaths,
        "errors": 0,
    }
    assert {name: reported[name] for name in expected} == expected
    assert expected == {"pushes": 17, "pops": 11, "acks": 7, "deaths": 6, "errors": 0}


async def test_a_worker_counts_the_messages_that_redis_counts_and_no_failed_handler_as_an_error(
    urls: StoreUrls, tmp_path: Path
) -> None:
    async with serving(urls, tmp_path) as house:
        applied = await house.tenant.client.put("/api/v1/spec", json={"source": SPEC})
        assert applied.status_code == 200, applied.text
        kinds = ["do"] * 5 + ["reject"] * 2 + ["fail"] * 3
        items = [{"queue": "jobs", "payload": {"kind": kind}} for kind in kinds]
        assert (await house.post("push", {"items": items}))[0] == 201
        options = WorkerOptions(name=f"w{os.getpid()}", wait_ms=100)
        task = asyncio.create_task(work(house.settings, urls, options))
        try:

            async def settled() -> bool:
                found = await house.totals()
                return found["acked"] + found["dead"] + found["nacked"] == len(kinds)

            await until(settled)
            (state,) = await house.process.services.broker.states(house.tenant.environment)

            assert state.delayed == 3, "three wait a minute for their retry"

            async def sampled() -> bool:
                # A report from before the last of them failed tells of fewer.
                told = await reports(urls.redis, shards=house.settings.shards)
                waiting = [one.values["backoff_max"] for _, one in told if one.dimensions[0] == "worker"]
                assert max(waiting, default=0) <= state.delayed
                return state.delayed in waiting

            await until(sampled)
        finally:
            await cancel_and_wait([task])
        counted = await house.totals()
    reported = await house.reported("worker")
    expected = {
        "pushes": 0,
        "pops": counted["dequeued"],
        "acks": counted["acked"],
        "deaths": counted["dead"],
        "jobs_done": 5,
        "errors": 0,
    }
    assert {name: reported[name] for name in expected} == expected
    assert expected["pops"] == len(kinds)
    assert reported["transactions"] > 0


@pytest.mark.fault
async def test_a_kill_loses_at_most_five_seconds_and_a_restart_in_the_same_minute_adds_up(
    urls: StoreUrls, tmp_path: Path
) -> None:
    """Two processes, one after the other: what was reported is what was pushed, less five seconds."""
    environment = {
        "WEIR_REDIS_URL": urls.redis,
        "WEIR_POSTGRES_URL": urls.postgres,
        "WEIR_CLICKHOUSE_URL": urls.clickhouse,
    }
    async with Database(urls.postgres) as database:
        token = await keep_token(Tokens(database), tmp_path / "admin.token", ADMIN)
    api = ApiProcess(tmp_path, environment)
    pushed_at: list[float] = []
    try:
        await api.start()
        async with httpx2.AsyncClient(
            base_url=api.url, headers={"authorization": f"Bearer {token}"}
        ) as client:
            made = await client.put("/api/v1/queues/q", json={})
            assert made.status_code == 200, made.text
            await _push_for(client, 8.0, pushed_at)
            killed_at = time.monotonic()
            await api.kill()
            after_kill = len(pushed_at)
            told = await reports(urls.redis, shards=SHARDS)
            first = sum(event.values["pushes"] for _, event in told)
            # 0.5 s for a busy machine: a report takes a moment on its way to Redis.
            safe = sum(at < killed_at - 5.5 for at in pushed_at)
            assert safe > 0
            assert safe <= first <= after_kill
            await api.start()
            await _push_for(client, 1.0, pushed_at)
            await api.stop()
    finally:
        await api.kill()
    told = await reports(urls.redis, shards=SHARDS)
    assert len({event.dimensions[2] for _, event in told}) == 2, "a start has an id of its own"
    assert sum(event.values["pushes"] for _, event in told) == first + len(pushed_at) - after_kill
    connection = ClickHouseConnection(urls.clickhouse)
    minute_ms = told[0][0] // MINUTE_MS * MINUTE_MS
    for number, (_, event) in enumerate(told):
        # As if all of it happened in one minute, whenever the test ran.
        numbers = {name: event.values[name] for name in ("samples", "pushes")}
        land_worker(connection, at_ms=minute_ms + 1_000 * number, worker_id=event.dimensions[2], **numbers)
    (row,) = connection.rows(
        "SELECT sum(pushes) AS pushes, sum(samples) AS samples FROM worker_metrics_1m GROUP BY bucket_start"
    )
    connection.close()
    assert row["pushes"] == first + len(pushed_at) - after_kill
    assert row["samples"] == sum(event.values["samples"] for _, event in told)


async def _push_for(client: httpx2.AsyncClient, seconds: float, pushed_at: list[float]) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        answer = await client.post("/api/v1/push", json={"items": [{"queue": "q", "payload": 1}]})
        assert answer.status_code == 201, answer.text
        pushed_at.append(time.monotonic())
        # A steady load, not as much as goes.
        await asyncio.sleep(0.02)
