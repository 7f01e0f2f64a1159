"""Liveness, readiness, and metrics that Prometheus accepts and that keep tenants apart."""

from __future__ import annotations

from dataclasses import replace

import httpx2
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from weir.api.app import create_app
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
