"""Switching metrics over HTTP: for operators, with a reason, in the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest
from redis.asyncio import Redis

from support.tcp_proxy import TcpProxy
from support.urls import with_database
from weir.api.app import create_app
from weir.api.services import Services, present
from weir.broker.broker import Broker
from weir.broker.metrics_switch import MetricsSwitch
from weir.broker.runner import RedisConnection
from weir.control.principals import Role
from weir.control.tokens import NewToken
from weir.pipeline.switching import MetricsSwitching

from .harness import Tenant, make_client

PATH = "/api/v1/pipeline/metrics"


@pytest.fixture
async def redis_proxy(redis_url: str) -> AsyncIterator[TcpProxy]:
    url = with_database(redis_url, "5")
    client = Redis.from_url(url)
    await client.flushdb()
    async with TcpProxy.to(url) as proxy:
        yield proxy
    await client.flushdb()
    await client.aclose()


@pytest.fixture
async def operator(
    services: Services, broker: Broker, redis_proxy: TcpProxy, warehouse_url: str
) -> AsyncIterator[httpx2.AsyncClient]:
    switch = MetricsSwitch(RedisConnection(url=redis_proxy.url, timeout_s=0.5), shards=4)
    switching = MetricsSwitching(
        switch, broker, redis_url=redis_proxy.url, clickhouse_url=warehouse_url, metrics=["queue", "worker"]
    )
    new = NewToken(name="operator", role=Role.OPERATOR, organization=None)
    text, _ = await present(services.tokens, "PostgreSQL").create(new)
    app = create_app(replace(services, metrics_switching=switching))
    async with make_client(app, text) as client:
        yield client
    await switch.aclose()


async def test_an_operator_switches_metrics_off_and_on(operator: httpx2.AsyncClient) -> None:
    never = (await operator.get(PATH)).json()
    assert (never["off"], never["since_ms"], never["loss"]) == (False, None, None)
    answer = await operator.put(PATH, json={"on": False, "reason": " a load test "})
    assert answer.status_code == 200, answer.text
    off = answer.json()
    assert (off["off"], off["reason"], off["recorded"], len(off["shards"])) == (True, "a load test", True, 4)
    assert off["by"].startswith("token:")
    assert off == (await operator.get(PATH)).json()
    again = (await operator.put(PATH, json={"on": False, "reason": "another"})).json()
    assert again == off, "twice is once"
    on = (await operator.put(PATH, json={"on": True})).json()
    assert (on["off"], [span["to_ms"] is None for span in on["spans"]]) == (False, [False] * 4)
    assert on == (await operator.put(PATH, json={"on": True})).json()
    log = (await operator.get("/api/v1/audit-log")).json()["items"]
    mine = [(one["action"], one["details"]) for one in log if one["target"] == "metrics"][:4]
    assert mine[-1] == ("metrics.off", {"reason": "a load test"})
    assert [action for action, _ in mine] == ["metrics.on", "metrics.on", "metrics.off", "metrics.off"]


async def test_switching_off_needs_a_reason(operator: httpx2.AsyncClient) -> None:
    for body in ({"on": False}, {"on": False, "reason": " "}, {"reason": "x"}, {"on": "no", "reason": "x"}):
        assert (await operator.put(PATH, json=body)).status_code in (400, 422)
    assert not (await operator.get(PATH)).json()["off"]


async def test_the_switch_is_not_for_tenants(tenant: Tenant) -> None:
    assert (await tenant.client.get(PATH)).status_code == 403
    assert (await tenant.client.put(PATH, json={"on": False, "reason": "x"})).status_code == 403


async def test_a_redis_that_is_away_is_said(operator: httpx2.AsyncClient, redis_proxy: TcpProxy) -> None:
    redis_proxy.refuse()
    answer = await operator.put(PATH, json={"on": False, "reason": "x"})
    assert (answer.status_code, answer.json()["code"]) == (503, "broker_unavailable")
    assert "shards 0, 1, 2, 3" in answer.json()["detail"]
    seen = (await operator.get(PATH)).json()
    assert [one["shard"] for one in seen["silent"]] == [0, 1, 2, 3]
    redis_proxy.heal()
    assert (await operator.put(PATH, json={"on": False, "reason": "x"})).status_code == 200
