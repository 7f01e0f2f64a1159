"""Who is looking, and the live stream of an environment's queues."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from weir.api.services import Services
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef

from .harness import Tenant, define


async def events(response: httpx2.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])


async def test_me_shows_the_scope_of_the_token_and_nothing_else(
    client: httpx2.AsyncClient, tenant: Tenant, other: Tenant, services: Services
) -> None:
    assert services.tenants is not None
    await services.tenants.ensure(tenant.environment)
    await services.tenants.ensure(other.environment)
    answer = (await client.get("/api/v1/me")).json()
    assert answer["role"] == "admin"
    assert [one["organization"] for one in answer["environments"]] == [tenant.environment.organization]


async def test_the_live_stream_starts_with_all_queues_and_goes_on_with_what_changes(
    base_url: str, tenant: Tenant, other: Tenant, services: Services, queue: str
) -> None:
    await define(services, other.environment, "of another tenant")
    async with (
        httpx2.AsyncClient(base_url=base_url, headers={"authorization": f"Bearer {tenant.token}"}) as client,
        client.stream("GET", "/api/v1/live") as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = events(response)
        name, first = await anext(stream)
        assert (name, [one["name"] for one in first["changed"]]) == ("snapshot", [queue])
        await services.broker.enqueue(tenant.environment.queue(queue), [NewMessage(payload=b"1")])
        name, change = await anext(stream)
        assert (name, [one["depth"] for one in change["changed"]]) == ("change", [1])


async def test_a_shutdown_ends_the_live_stream(
    base_url: str, tenant: Tenant, services: Services, queue: str
) -> None:
    async with (
        httpx2.AsyncClient(base_url=base_url, headers={"authorization": f"Bearer {tenant.token}"}) as client,
        client.stream("GET", "/api/v1/live") as response,
    ):
        stream = events(response)
        assert (await anext(stream))[0] == "snapshot"
        services.stopping.set()
        assert [name async for name, _ in stream] == []


async def test_many_streams_of_an_environment_ask_the_broker_once_a_look(
    base_url: str, tenant: Tenant, services: Services, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    states = services.broker.states

    async def counted(environment: EnvironmentRef) -> Any:
        nonlocal asked
        asked += 1
        return await states(environment)

    monkeypatch.setattr(services.broker, "states", counted)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            httpx2.AsyncClient(base_url=base_url, headers={"authorization": f"Bearer {tenant.token}"})
        )
        streams = []
        for _ in range(20):
            response = await stack.enter_async_context(client.stream("GET", "/api/v1/live"))
            streams.append(events(response))
            assert (await anext(streams[-1]))[0] == "snapshot"
        await services.broker.enqueue(tenant.environment.queue(queue), [NewMessage(payload=b"1")])
        for stream in streams:
            name, change = await anext(stream)
            assert (name, [one["depth"] for one in change["changed"]]) == ("change", [1])
        assert asked < 15
    async with asyncio.timeout(10):
        while any(task.get_name() == "live-queues" for task in asyncio.all_tasks()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
