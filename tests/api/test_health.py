"""Liveness, readiness, and metrics that Prometheus accepts and that keep tenants apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from support.waiting import until
from weir.api.app import create_app
from weir.api.limits import Limits
from weir.api.prometheus import MAX_QUEUES, queue_families
from weir.api.services import ReadinessProbe, Services
from weir.errors import BrokerUnavailable
from weir.model.message import NewMessage, QueueState

from .harness import Tenant, define, make_client


async def test_a_process_is_alive_without_asking_anyone(client: httpx2.AsyncClient) -> None:
    for path in ("/livez", "/healthz"):
        assert (await client.get(path)).json() == {"status": "alive"}


async def test_a_process_is_ready_while_everything_essential_is(services: Services, tenant: Tenant) -> None:
    async def fine() -> None:
        return

    async def broken() -> None:
        raise BrokerUnavailable("Redis is empty")

    for essential, expected in ((False, 200), (True, 503)):
        probes = (
            ReadinessProbe(name="a", check=fine),
            ReadinessProbe(name="b", check=broken, essential=essential),
        )
        async with make_client(create_app(replace(services, probes=probes)), tenant.token) as client:
            answer = await client.get("/readyz")
        assert answer.status_code == expected
        assert answer.json()["checks"] == {"a": "ok", "b": "Redis is empty"}


async def test_a_stopping_process_is_not_ready(client: httpx2.AsyncClient, services: Services) -> None:
    assert (await client.get("/readyz")).status_code == 200
    services.stopping.set()
    assert (await client.get("/readyz")).status_code == 503


async def test_metrics_show_the_tenant_its_own_queues(
    services: Services, tenant: Tenant, other: Tenant
) -> None:
    for side in (tenant, other):
        await define(services, side.environment, 'odd "name"\\')
    items = [{"queue": 'odd "name"\\', "payload": 1}] * 3
    await tenant.client.post("/api/v1/push", json={"items": items})
    queue = tenant.environment.queue('odd "name"\\')
    (cancelled,) = await services.broker.enqueue(queue, [NewMessage(payload=b"1")])
    await services.broker.cancel(queue, [cancelled.message_id])
    text = (await tenant.client.get("/metrics")).text
    families = {family.name: family for family in parse_text(text)}
    (depth,) = families["weir_queue_depth"].samples
    assert (depth.value, depth.labels["queue"]) == (3, 'odd "name"\\')
    assert families["weir_messages_enqueued"].samples[0].value == 4
    assert families["weir_messages_cancelled"].samples[0].value == 1
    assert families["weir_environment_depth"].samples[0].value == 3
    assert families["weir_build_info"].samples[0].value == 1
    assert other.environment.organization not in text


async def test_metrics_without_a_credential_name_no_tenant(services: Services, tenant: Tenant) -> None:
    await define(services, tenant.environment, "q")
    async with make_client(create_app(services), "") as client:
        del client.headers["authorization"]
        await client.get("/livez")
        text = (await client.get("/metrics")).text
    assert 'weir_http_request_duration_seconds_count{method="GET",route="/livez",status="200"} 1.0' in text
    assert "weir_build_info" in text
    assert tenant.environment.organization not in text
    assert "weir_queue_depth" not in text


async def test_the_operators_token_shows_everyone(services: Services, tenant: Tenant, other: Tenant) -> None:
    for side in (tenant, other):
        await define(services, side.environment, "q")
    async with make_client(create_app(replace(services, metrics_token="operator")), "operator") as client:
        text = (await client.get("/metrics")).text
        wrong = await client.get("/metrics", headers={"authorization": "Bearer operator2"})
    assert tenant.environment.organization in text
    assert other.environment.organization in text
    assert wrong.status_code == 401


async def test_metrics_come_in_both_formats(client: httpx2.AsyncClient, queue: str) -> None:
    await client.get("/livez")
    plain = await client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    modern = await client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert modern.headers["content-type"].startswith("application/openmetrics-text")
    assert list(parse_openmetrics(modern.text))


def test_labels_are_bounded(tenant_state: QueueState) -> None:
    states = [
        replace(tenant_state, queue=tenant_state.queue.scope.queue(f"q{number}"), depth=number)
        for number in range(MAX_QUEUES + 100)
    ]
    (depth,) = [family for family in queue_families(states) if family.name == "weir_queue_depth"]
    assert len(depth.samples) == MAX_QUEUES
    assert min(sample.value for sample in depth.samples) == 100


@pytest.fixture
def tenant_state(tenant: Tenant) -> QueueState:
    return QueueState(
        queue=tenant.environment.queue("q"),
        depth=0,
        delayed=0,
        running=0,
        limit=None,
        environment_depth=0,
        environment_running=0,
        environment_limit=None,
        oldest_age_ms=0,
        paused=False,
        popped=False,
        odometers={},
    )


async def test_all_who_ask_together_share_one_look_at_the_stores(services: Services, tenant: Tenant) -> None:
    looks, go = 0, asyncio.Event()

    async def slow() -> None:
        nonlocal looks
        looks += 1
        await go.wait()

    probed = replace(services, probes=(ReadinessProbe(name="slow", check=slow),))
    async with make_client(create_app(probed), tenant.token) as client, asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(client.get("/readyz")) for _ in range(20)]
        await until(lambda: looks)
        go.set()
        assert {(await one).status_code for one in asking} == {200}
    assert looks == 1


async def test_a_scope_has_its_metrics_written_once_for_all_who_ask_and_not_for_others(
    services: Services, tenant: Tenant, other: Tenant
) -> None:
    gathered = 0

    async def families() -> AsyncIterator[Metric]:
        nonlocal gathered
        gathered += 1
        yield GaugeMetricFamily("weir_gathered", "How often.", gathered)

    kept = replace(services, metric_sources=(families,), limits=Limits(kept_scrape_s=60))
    app = create_app(kept)
    for side in (tenant, other):
        await define(services, side.environment, "q")
    async with make_client(app, tenant.token) as client, make_client(app, other.token) as stranger:
        texts = [answer.text for answer in await asyncio.gather(*(client.get("/metrics") for _ in range(9)))]
        foreign = (await stranger.get("/metrics")).text
    assert gathered == 2
    assert len(set(texts)) == 1
    assert tenant.environment.organization in texts[0]
    assert tenant.environment.organization not in foreign
