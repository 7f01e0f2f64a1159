"""Who is looking, and the live stream of an environment's queues."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from weir.api.services import Services
from weir.model.message import NewMessage

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
