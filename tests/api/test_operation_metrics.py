"""The operation queue as operators see it: in `/metrics`, in `/operations/stats`, and one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from weir.api.app import create_app
from weir.api.limits import Limits
from weir.api.services import Services
from weir.broker.broker import Broker
from weir.control.database import Database, PoolState
from weir.errors import BrokerUnavailable, ControlUnavailable
from weir.exchange.admit import AnsweringPusher
from weir.exchange.metrics import operation_families
from weir.exchange.service import OperationService
from weir.model.holders import STRANGERS
from weir.operations.store import MOST_PARTITIONS
from weir.spec.ir import QueueSpec, Retention

from .harness import Tenant, define, make_client


@pytest.fixture
async def operations(database: Database, broker: Broker) -> OperationService:
    for shard in range(broker.shards):
        await broker.allow_direct(shard, until_ms=await broker.now_ms(shard) + 10_000)
    return OperationService(database=database, broker=broker)


@pytest.fixture
def services(services: Services, operations: OperationService) -> Services:
    return replace(
        services,
        pusher=AnsweringPusher(operations.front(), operations.tally),
        settler=operations.counted_settler(operations.settlements),
        operations=operations,
        limits=Limits(kept_scrape_s=0),
        metric_sources=(operation_families(operations),),
        pools={"operations": lambda: PoolState(busy=2, max_size=6, waiting=3)},
    )


async def push(client: httpx2.AsyncClient, queue: str, *keys: str) -> httpx2.Response:
    items = [{"queue": queue, "key": key, "payload": 1} for key in keys]
    return await client.post("/api/v1/push", json={"items": items})


async def scraped(client: httpx2.AsyncClient) -> dict[tuple[Any, ...], float]:
    """Every sample of `/metrics`, by name and sorted labels."""
    text = (await client.get("/metrics")).text
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def answers(samples: dict[tuple[Any, ...], float], what: str = "push") -> dict[tuple[str, str], float]:
    found = {}
    for (name, *labels), value in samples.items():
        if name == f"weir_{what}_answers_total":
            named = dict(labels)
            found[named["status"], named["reason"]] = value
    return found


async def test_answers_are_counted_by_status_and_reason(
    client: httpx2.AsyncClient, services: Services, tenant: Tenant, queue: str, operations: OperationService
) -> None:
    await define(services, tenant.environment, "full")
    await services.broker.define(
        tenant.environment.queue("full"), QueueSpec(name="full", retention=Retention(max_depth=1))
    )
    await push(client, queue, "a", "b")
    await push(client, "full", "a")
    assert (await push(client, "full", "a")).status_code == 503
    operations.admission.in_flight = 10_000
    await push(client, queue, "a")
    operations.admission.in_flight = 0
    await push(client, queue, "a", "z")
    operations.admission.lag_ms, operations.admission.in_flight = 10_000, 50
    refused = await push(client, queue, "z")
    assert (refused.status_code, refused.json()["reason"]) == (429, "event_loop_lag")
    operations.admission.lag_ms = operations.admission.in_flight = 0
    assert answers(await scraped(client)) == {
        ("201", "executed"): 4,
        ("202", "system_busy"): 1,
        ("202", "maintaining_order"): 1,
        ("503", "queue_full"): 1,
        ("429", "event_loop_lag"): 1,
    }


async def test_a_full_operation_queue_and_a_spent_budget_are_told_apart(
    client: httpx2.AsyncClient, queue: str, operations: OperationService
) -> None:
    admission = operations.admission
    admission.in_flight = 10_000
    admission.depth = 1_000_000
    assert (await push(client, queue, "a")).json()["reason"] == "operation_queue_full"
    admission.depth = 0
    admission.budget.spend(1_000, STRANGERS)
    assert (await push(client, queue, "a")).json()["reason"] == "burst_spent"


async def test_acks_are_counted_too(
    client: httpx2.AsyncClient, queue: str, operations: OperationService
) -> None:
    await push(client, queue, "a")
    (message,) = (await client.post("/api/v1/pop", json={"queue": queue})).json()["messages"]
    named = {name: message[name] for name in ("queue", "id", "lease")}
    await client.post("/api/v1/ack", json=named)
    await client.post("/api/v1/ack", json={**named, "lease": "0" * 32})
    assert answers(await scraped(client), "settle") == {("200", "executed"): 1, ("409", "lease_lost"): 1}


async def test_depth_age_and_what_was_finished_are_gauges_and_counters(
    client: httpx2.AsyncClient, queue: str, operations: OperationService
) -> None:
    before = await scraped(client)
    operations.admission.in_flight = 10_000
    await push(client, queue, "a", "b", "c")
    operations.admission.in_flight = 0
    queued = await scraped(client)
    pushes = (("type", "PUSH"),)
    assert (
        queued["weir_operation_queue_depth", *pushes]
        == before.get(("weir_operation_queue_depth", *pushes), 0) + 3
    )
    assert queued["weir_operation_queue_oldest_age_seconds",] > 0
    assert queued["weir_operation_queue_up",] == 1
    assert ("weir_operations_finished_total", ("status", "completed"), *pushes) not in before
    while await operations.processor.run_round():
        pass
    drained = await scraped(client)
    assert drained["weir_operation_queue_depth", *pushes] == 0
    assert drained["weir_operation_queue_oldest_age_seconds",] == 0
    assert drained["weir_operations_finished_total", ("status", "completed"), *pushes] >= 3
    assert drained["weir_operation_queue_drain_per_second",] > 0


async def test_failures_are_counted_and_shown_with_their_time(
    client: httpx2.AsyncClient, services: Services, tenant: Tenant, operations: OperationService
) -> None:
    await define(services, tenant.environment, "gone")
    operations.admission.in_flight = 10_000
    answer = await push(client, "gone", "a")
    operations.admission.in_flight = 0
    path = answer.headers["location"]
    await services.broker.forget(tenant.environment.queue("gone"))
    assert (await client.get(path)).json()["last_error_at_ms"] is None
    while (shown := (await client.get(path)).json())["status"] != "failed":
        await operations.processor.run_round()
    assert shown["last_error_at_ms"] >= shown["created_ms"]
    assert "gone" in shown["error_message"]
    samples = await scraped(client)
    assert samples["weir_operations_finished_total", ("status", "failed"), ("type", "PUSH")] == 1
    assert samples["weir_operation_queue_failed",] >= 1


async def test_stats_name_the_fullest_partitions_and_never_the_metrics(
    client: httpx2.AsyncClient,
    other: Tenant,
    services: Services,
    tenant: Tenant,
    operations: OperationService,
) -> None:
    for name in ("wide", "deep"):
        await define(services, tenant.environment, name)
    operations.admission.in_flight = 10_000
    for _ in range(3):
        await push(client, "deep", "hot key", "hot key")
    await push(client, "wide", *(f"k{n:02}" for n in range(MOST_PARTITIONS + 5)))
    operations.admission.in_flight = 0
    found = (await client.get("/api/v1/operations/stats")).json()
    fullest = found["fullest_partitions"]
    assert len(fullest) == MOST_PARTITIONS
    assert [(one["queue"], one["partition"], one["operations"], one["messages"]) for one in fullest[:2]] == [
        ("deep", "hot key", 3, 6),
        ("wide", "k00", 1, 1),
    ]
    assert fullest[0]["oldest_age_ms"] >= fullest[1]["oldest_age_ms"] >= 0
    assert (fullest[0]["last_error"], fullest[0]["last_error_at_ms"]) == (None, None)
    assert (await other.client.get("/api/v1/operations/stats")).json()["fullest_partitions"] == []
    assert "hot key" not in (await client.get("/metrics")).text


async def test_what_the_head_of_a_partition_waits_for_stands_in_the_stats(
    client: httpx2.AsyncClient, queue: str, operations: OperationService, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations.admission.in_flight = 10_000
    await push(client, queue, "a")
    operations.admission.in_flight = 0

    async def away(*_: object, **__: object) -> None:
        raise BrokerUnavailable("Redis is being moved")

    with monkeypatch.context() as patch:
        patch.setattr(type(operations.processor._broker), "enqueue", away)
        await operations.processor.run_round()
    (partition,) = (await client.get("/api/v1/operations/stats")).json()["fullest_partitions"]
    assert partition["last_error"] == "broker_unavailable: Redis is being moved"
    assert partition["last_error_at_ms"] > 0


async def test_how_many_wait_for_a_connection_is_told(client: httpx2.AsyncClient) -> None:
    health = (await client.get("/api/v1/operations/stats")).json()["system_health"]
    assert health["pool_waiting"] == 3
    samples = await scraped(client)
    pool = ("pool", "operations")
    assert samples["weir_postgres_pool_waiting", pool] == 3
    assert samples["weir_postgres_pool_busy_connections", pool] == 2
    assert samples["weir_postgres_pool_max_connections", pool] == 6


async def test_without_postgres_what_this_process_counted_is_still_told(
    services: Services,
    operations: OperationService,
    queue: str,
    tenant: Tenant,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise ControlUnavailable("PostgreSQL does not answer")

    async with make_client(create_app(services), tenant.token) as client:
        await push(client, queue, "a")
        monkeypatch.setattr(operations.store, "gauges", away)
        samples = await scraped(client)
    assert answers(samples) == {("201", "executed"): 1}
    assert samples["weir_operation_queue_up",] == 0
    assert not [name for name, *_ in samples if name == "weir_operation_queue_depth"]
