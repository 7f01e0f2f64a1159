"""History over HTTP, in the documented shape and within the caller's tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2
import pytest

from support.history import Moment, land_lags, land_moments, land_worker
from support.urls import with_database
from support.warehouse import NOW_MS, FixedTails, WarehouseRig
from weir.api.app import create_app
from weir.api.schemas.history import (
    EnvironmentMetrics,
    EnvironmentMetricsColumns,
    QueueMetrics,
    QueueMetricsColumns,
    WorkerList,
    WorkerMetrics,
    WorkerMetricsColumns,
    WorkerQueueList,
)
from weir.api.services import Services
from weir.control.principals import Principal, Role
from weir.errors import Unauthenticated
from weir.exchange.attempt import DirectPusher
from weir.exchange.settle import DirectSettler
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import QueueSpec
from weir.telemetry.presence import ServingProcess
from weir.testing.memory import MemoryBroker
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.reading.warehouse import Warehouse, open_warehouse
from weir.warehouse.reading.workers import OF_TENANTS


class NamedTokens:
    """Tokens that a test gives out: text to principal."""

    def __init__(self) -> None:
        self.principals: dict[str, Principal] = {}

    async def authenticate(self, text: str) -> Principal:
        if text not in self.principals:
            raise Unauthenticated("no such token")
        return self.principals[text]

    def forget(self, token_id: str) -> None: ...

    def of(self, environment: EnvironmentRef, role: Role = Role.READ) -> dict[str, str]:
        text = f"token-{len(self.principals)}"
        self.principals[text] = Principal(
            token_id=text,
            role=role,
            organization=environment.organization,
            project=environment.project,
            environment=environment.environment,
        )
        return {"authorization": f"Bearer {text}"}


class NamedServers:
    """Who served whom, as a test says."""

    def __init__(self) -> None:
        self.by_environment: dict[EnvironmentRef, list[ServingProcess]] = {}

    async def of(self, environment: EnvironmentRef, *, since_ms: int) -> list[ServingProcess]:
        return self.by_environment.get(environment, [])


@pytest.fixture
def served_by() -> NamedServers:
    return NamedServers()


@pytest.fixture
def tokens() -> NamedTokens:
    return NamedTokens()


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@asynccontextmanager
async def opened(
    warehouse: Warehouse, tokens: NamedTokens, served_by: NamedServers, broker: MemoryBroker
) -> AsyncIterator[httpx2.AsyncClient]:
    services = Services(
        broker=broker,
        authenticator=tokens,
        pusher=DirectPusher(broker),
        settler=DirectSettler(broker),
        warehouse=warehouse,
        clock=warehouse.clock,
        servers=served_by,
    )
    transport = httpx2.ASGITransport(app=create_app(services))
    async with httpx2.AsyncClient(transport=transport, base_url="http://weir") as client:
        yield client


@pytest.fixture
async def client(
    rig: WarehouseRig, tokens: NamedTokens, served_by: NamedServers, broker: MemoryBroker
) -> AsyncIterator[httpx2.AsyncClient]:
    async with opened(rig.warehouse, tokens, served_by, broker) as client:
        yield client


def moment(queue: QueueRef, **values: Any) -> Moment:
    return Moment(queue=queue, at_ms=NOW_MS - 60_000, **values)


async def test_the_source_shape_comes_with_percentiles_totals_and_kinds(
    client: httpx2.AsyncClient, rig: WarehouseRig, tokens: NamedTokens, environment: EnvironmentRef
) -> None:
    queue = environment.queue("a/b:c ✓")
    land_moments(
        rig.connection,
        [
            moment(
                queue,
                counts={"enqueued": 3, "dequeued": 2, "acked": 2, "nacked": 2, "cancelled": 7},
                gauges={"queue_length": 120, "running": 8, "queue_limit": 10, "oldest_age_ms": 8_200},
                lows={"queue_length": 100},
                odometers={"acked": 77},
                waits_ms=[1_000, 2_000],
            )
        ],
    )
    path = f"/api/v1/queues/{quote(queue.queue, safe='')}/metrics"
    response = await client.get(path, params={"period": "30m"}, headers=tokens.of(environment))
    assert response.status_code == 200, response.text
    document = response.json()
    QueueMetrics.model_validate(document)
    assert (document["queue"], document["resolution"], len(document["timeseries"])) == ("a/b:c ✓", "5s", 360)
    point = next(point for point in document["timeseries"] if point["kind"] == "measured")
    assert point["throughput"] == {
        "enqueued": 3, "dequeued": 2, "completed": 2, "completed_per_s": 0.4, "cancelled": 7,
    }  # fmt: skip
    assert point["queue_depth"] == {"max": 120, "min": 100, "avg": 120}
    assert point["latency"]["avg_wait_ms"] == 1_500
    assert (point["latency"]["min_age_ms"], point["latency"]["avg_age_ms"]) == (8_200, 8_200)
    assert point["concurrency"] == {"max": 8, "min": 8, "avg": 8, "limit": 10, "utilization_pct": 80}
    assert point["failures"]["error_rate"] == 0.5
    assert point["totals"]["acked"] == 77
    assert document["timeseries"][-1]["kind"] == "carried"
    (part,) = document["percentile_sketches"]
    assert (part["start"], part["sketch"]) == (point["timestamp"], "ddsketch")


async def test_as_columns_a_series_has_the_same_values(
    client: httpx2.AsyncClient,
    rig: WarehouseRig,
    tokens: NamedTokens,
    served_by: NamedServers,
    environment: EnvironmentRef,
) -> None:
    counts = {"enqueued": 3, "dequeued": 2, "acked": 2}
    land_moments(rig.connection, [moment(environment.queue("q"), counts=counts, waits_ms=[1_000])])
    land_worker(
        rig.connection, at_ms=NOW_MS - 5_000, worker_id="in-columns", samples=5, free_slots_min=1, pushes=5
    )
    served_by.by_environment[environment] = [ServingProcess(worker_id="in-columns", shared=False)]
    for path, model in (
        ("queues/q/metrics", QueueMetricsColumns),
        (f"environments/{quote(environment.environment, safe='')}/queue-metrics", EnvironmentMetricsColumns),
        ("workers/metrics", WorkerMetricsColumns),
        ("workers/in-columns/metrics", WorkerMetricsColumns),
    ):

        async def series(**query: str) -> dict[str, Any]:
            answer = await client.get(f"/api/v1/{path}", params=query, headers=tokens.of(environment))  # noqa: B023
            assert answer.status_code == 200, answer.text
            return answer.json()

        points, columns = await series(), await series(format="columns")
        assert points == await series(format="points")
        model.model_validate(columns)
        assert "columns" not in points
        assert rows_of(columns.pop("columns")) == points.pop("timeseries"), path
        assert columns == points


def rows_of(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """The points again, from their columns."""
    named = {name: rows_of(part) if isinstance(part, dict) else part for name, part in columns.items()}
    return [dict(zip(named, row, strict=True)) for row in zip(*named.values(), strict=True)]


async def test_an_environment_has_totals_and_top_queues(
    client: httpx2.AsyncClient, rig: WarehouseRig, tokens: NamedTokens, environment: EnvironmentRef
) -> None:
    queues = [environment.queue(f"q{number}") for number in range(3)]
    land_moments(
        rig.connection,
        [moment(queue, counts={"acked": number}, waits_ms=[number]) for number, queue in enumerate(queues)],
    )
    path = f"/api/v1/environments/{quote(environment.environment, safe='')}/queue-metrics"
    response = await client.get(
        path, params={"by": "wait_p95_ms", "top": 2, "period": "24h"}, headers=tokens.of(environment)
    )
    assert response.status_code == 200, response.text
    EnvironmentMetrics.model_validate(response.json())
    assert [rank["queue"] for rank in response.json()["top_queues"]] == ["q2", "q1"]


async def test_every_queue_at_a_glance_has_its_depth_over_time(
    client: httpx2.AsyncClient, rig: WarehouseRig, tokens: NamedTokens, environment: EnvironmentRef
) -> None:
    land_moments(
        rig.connection,
        [moment(environment.queue("q"), counts={"acked": 4}, gauges={"queue_length": 7}, waits_ms=[250])],
    )
    path = f"/api/v1/environments/{quote(environment.environment, safe='')}/queue-overview"
    response = await client.get(path, params={"period": "30m"}, headers=tokens.of(environment))
    assert response.status_code == 200, response.text
    (glance,) = response.json()["items"]
    assert (glance["queue"], glance["p95_ms"], glance["counters"]["acked"]) == ("q", 250, 4)
    assert glance["depth"] == [None] * 29 + [7]
    stranger = tokens.of(replace(environment, organization="other"))
    assert (await client.get(path, headers=stranger)).json()["items"] == []


async def test_another_tenant_reads_nothing(
    client: httpx2.AsyncClient, rig: WarehouseRig, tokens: NamedTokens, environment: EnvironmentRef
) -> None:
    land_moments(rig.connection, [moment(environment.queue("q"), counts={"acked": 1})])
    other = replace(environment, organization="other")
    headers = tokens.of(other)
    assert (await client.get("/api/v1/queues/q/metrics", headers=headers)).status_code == 404
    path = f"/api/v1/environments/{quote(environment.environment, safe='')}/queue-metrics"
    assert (await client.get(path, headers=headers)).json()["top_queues"] == []
    path = "/api/v1/environments/elsewhere/queue-metrics"
    assert (await client.get(path, headers=headers)).status_code == 404
    assert (await client.get("/api/v1/queues/q/metrics")).status_code == 401


async def test_a_queue_that_is_neither_defined_nor_in_the_warehouse_is_not_found(
    client: httpx2.AsyncClient,
    broker: MemoryBroker,
    rig: WarehouseRig,
    tokens: NamedTokens,
    environment: EnvironmentRef,
) -> None:
    headers = tokens.of(environment)
    answer = await client.get("/api/v1/queues/nowhere/metrics", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    await broker.define(environment.queue("defined"), QueueSpec(name="defined"))
    land_moments(rig.connection, [moment(environment.queue("forgotten"), counts={"acked": 1})])
    before = {"from": str(NOW_MS - 7_200_000), "to": str(NOW_MS - 3_600_000)}
    for name, query in (("defined", {}), ("forgotten", {}), ("forgotten", before)):
        answer = await client.get(f"/api/v1/queues/{name}/metrics", params=query, headers=headers)
        assert answer.status_code == 200, (name, query, answer.text)
        assert answer.json()["timeseries"][0]["kind"] == "unknown", (name, query)


@pytest.mark.parametrize(
    "query",
    [
        {"period": "0m"},
        {"period": "5 parsecs"},
        {"period": "30m", "from": "2026-01-01T00:00:00Z"},
        {"from": "yesterday"},
        {"from": "99999999999999"},
        {"from": "2026-01-02", "to": "2026-01-01"},
        {"to": "1"},
        {"resolution": "2s"},
        {"format": "rows"},
        {"from": "0001-01-01T00:00:00+23:59"},
    ],
)
async def test_a_period_or_format_that_makes_no_sense_is_a_problem(
    client: httpx2.AsyncClient, tokens: NamedTokens, environment: EnvironmentRef, query: dict[str, str]
) -> None:
    response = await client.get("/api/v1/queues/q/metrics", params=query, headers=tokens.of(environment))
    assert (response.status_code, response.json()["code"]) == (422, "invalid_input")


async def test_workers_show_their_hosts_to_admins_alone(
    client: httpx2.AsyncClient,
    rig: WarehouseRig,
    tokens: NamedTokens,
    served_by: NamedServers,
    environment: EnvironmentRef,
) -> None:
    land_worker(rig.connection, at_ms=NOW_MS - 5_000, worker_id="w", samples=5, free_slots_min=1, pushes=5)
    served_by.by_environment[environment] = [ServingProcess(worker_id="w", shared=False)]
    seen = await client.get("/api/v1/workers", headers=tokens.of(environment))
    WorkerList.model_validate(seen.json())
    assert [worker["hostname"] for worker in seen.json()["workers"]] == [None]
    trusted = await client.get("/api/v1/workers", headers=tokens.of(environment, Role.ADMIN))
    assert [worker["hostname"] for worker in trusted.json()["workers"]] == ["host"]
    for path in ("/api/v1/workers/metrics", "/api/v1/workers/w/metrics"):
        series = await client.get(path, headers=tokens.of(environment))
        WorkerMetrics.model_validate(series.json())
        assert sum(point["figures"]["pushes"] or 0 for point in series.json()["timeseries"]) == 5


async def test_a_tenant_sees_the_processes_that_served_it_and_what_they_counted_for_it_alone(
    client: httpx2.AsyncClient,
    rig: WarehouseRig,
    tokens: NamedTokens,
    served_by: NamedServers,
    environment: EnvironmentRef,
) -> None:
    for worker_id in ("own", "shared", "theirs"):
        figures = {
            "samples": 5,
            "free_slots_min": 1,
            "event_loop_lag_us_max": 7_000,
            "pushes": 91,
            "lag_count": 1,
        }
        land_worker(rig.connection, at_ms=NOW_MS - 5_000, worker_id=worker_id, **figures)
    served_by.by_environment[environment] = [
        ServingProcess(worker_id="own", shared=False),
        ServingProcess(worker_id="shared", shared=True),
    ]
    for headers in (tokens.of(environment), tokens.of(environment, Role.ADMIN)):
        listed = (await client.get("/api/v1/workers", headers=headers)).json()["workers"]
        found = {worker["worker_id"]: worker["figures"] for worker in listed}
        assert set(found) == {"own", "shared"}
        assert (found["own"]["pushes"], found["own"]["lag_mean_ms"]) == (91, 0)
        assert {name for name, value in found["shared"].items() if value is None} >= set(OF_TENANTS)
        assert found["shared"]["event_loop_lag_max_ms"] == 7
        for path, pushes in (("", 91), ("/own", 91), ("/shared", 0)):
            series = await client.get(f"/api/v1/workers{path}/metrics", headers=headers)
            points = [point["figures"] for point in series.json()["timeseries"]]
            assert sum(point["pushes"] or 0 for point in points) == pushes, path
            assert any(point["event_loop_lag_max_ms"] for point in points), path
        for name in ("theirs", "nobody"):
            answer = await client.get(f"/api/v1/workers/{name}/metrics", headers=headers)
            assert answer.status_code == 404, name
    operator = tokens.of(environment, Role.OPERATOR)
    listed = (await client.get("/api/v1/workers", headers=operator)).json()["workers"]
    pushes_by_id = {worker["worker_id"]: worker["figures"]["pushes"] for worker in listed}
    assert pushes_by_id == {"own": 91, "shared": 91}
    stranger = replace(environment, environment="another")
    assert (await client.get("/api/v1/workers", headers=tokens.of(stranger))).json()["workers"] == []


async def test_an_operator_sees_every_process_and_a_tenant_nothing_of_a_shared_one(
    client: httpx2.AsyncClient,
    rig: WarehouseRig,
    tokens: NamedTokens,
    served_by: NamedServers,
    environment: EnvironmentRef,
) -> None:
    stranger = replace(environment, environment="another")
    for worker_id in ("wide", "foreign"):
        figures = {"samples": 5, "free_slots_min": 1, "pushes": 91, "backoff_max": 3}
        land_worker(rig.connection, at_ms=NOW_MS - 5_000, worker_id=worker_id, **figures)
    lags = {environment.queue("mine"): [10, 20], stranger.queue("theirs"): [5], None: [7]}
    for queue, lags_ms in lags.items():
        land_lags(rig.connection, at_ms=NOW_MS - 5_000, worker_id="wide", queue=queue, lags_ms=lags_ms)
    served_by.by_environment[environment] = [ServingProcess(worker_id="wide", shared=True)]
    everything = {"params": {"all_environments": "true"}, "headers": tokens.of(environment, Role.OPERATOR)}
    listed = (await client.get("/api/v1/workers", **everything)).json()
    WorkerList.model_validate(listed)
    found = {worker["worker_id"]: worker for worker in listed["workers"]}
    for worker_id in ("wide", "foreign"):
        one = found[worker_id]
        assert (one["hostname"], one["pid"], one["figures"]["pushes"]) == ("host", "1", 91)
    assert found["wide"]["figures"]["lag_p99_ms"] == pytest.approx(20, rel=0.01)
    # The warehouse also holds the processes of other tests.
    pushed = sum(one["figures"]["pushes"] for one in found.values())
    for path, pushes in (("", pushed), ("/wide", 91)):
        series = (await client.get(f"/api/v1/workers{path}/metrics", **everything)).json()
        assert sum(point["figures"]["pushes"] or 0 for point in series["timeseries"]) == pushes, path
    queues = (await client.get("/api/v1/workers/wide/queues", **everything)).json()
    WorkerQueueList.model_validate(queues)
    assert {(one["queue"], one["pops"]) for one in queues["items"]} == {("mine", 2), ("theirs", 1), (None, 1)}
    assert (await client.get("/api/v1/workers/nobody/metrics", **everything)).status_code == 404

    for role in (Role.READ, Role.ADMIN):
        headers = tokens.of(environment, role)
        (seen,) = (await client.get("/api/v1/workers", headers=headers)).json()["workers"]
        assert (seen["hostname"], seen["pid"]) == (None, None)
        assert {name for name, value in seen["figures"].items() if value is None} >= set(OF_TENANTS)
        queues = (await client.get("/api/v1/workers/wide/queues", headers=headers)).json()
        assert [(one["queue"], one["pops"]) for one in queues["items"]] == [("mine", 2)]
        assert (await client.get("/api/v1/workers/foreign/queues", headers=headers)).status_code == 404
        for path in ("", "/metrics", "/wide/metrics", "/wide/queues"):
            asked = await client.get(
                f"/api/v1/workers{path}", headers=headers, params={"all_environments": "true"}
            )
            assert asked.status_code == 403, path


@pytest.mark.parametrize("statement", ["", "CREATE DATABASE {name:Identifier}"])
async def test_a_warehouse_that_was_never_migrated_is_unavailable_and_says_what_to_do(
    clickhouse_url: str,
    tokens: NamedTokens,
    served_by: NamedServers,
    environment: EnvironmentRef,
    statement: str,
) -> None:
    name = f"bare_{uuid4().hex}"
    if statement:
        with closing(ClickHouseConnection(clickhouse_url)) as connection:
            connection.command(statement, {"name": name})
    warehouse = open_warehouse(with_database(clickhouse_url, name), tails=FixedTails(), shards=1)
    served_by.by_environment[environment] = [ServingProcess(worker_id="w", shared=False)]
    try:
        async with opened(warehouse, tokens, served_by, MemoryBroker()) as client:
            env = quote(environment.environment, safe="")
            for path in (
                "/api/v1/queues/q/metrics",
                f"/api/v1/environments/{env}/queue-metrics",
                f"/api/v1/environments/{env}/queue-overview",
                "/api/v1/workers",
                "/api/v1/workers/metrics",
            ):
                answer = await client.get(path, headers=tokens.of(environment))
                assert (answer.status_code, answer.json()["code"]) == (503, "warehouse_unavailable"), path
                assert "weir migrate" in answer.json()["detail"], path
    finally:
        await warehouse.aclose()
