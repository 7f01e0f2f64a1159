"""Requests take a slot when they are complete and verified, and tenants share the slots fairly."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from support.waiting import until
from weir.api.app import create_app, describe
from weir.api.edge import Edge
from weir.api.limits import Limits
from weir.api.routes.table import HOT
from weir.api.services import Services
from weir.control.principals import Role
from weir.control.tokens import NewToken
from weir.errors import Overloaded
from weir.model.holders import STRANGERS
from weir.serve.server import bind, listening

from .harness import PUSH, Tenant, define, make_client

_METHODS = ("post", "put", "patch", "delete")


def routes_with_bodies() -> list[tuple[str, str]]:
    """Every route of the description that may have a body and asks for a token."""
    return [
        (method.upper(), re.sub(r"{[^}]*}", "x", path))
        for path, item in describe()["paths"].items()
        for method in item
        if method in _METHODS and not path.startswith("/hook/")
    ]


@asynccontextmanager
async def on_a_socket(services: Services, limits: Limits) -> AsyncIterator[tuple[Edge, int]]:
    """The API with these limits, and its port."""
    services = replace(services, limits=limits)
    app, listener = create_app(services), bind("127.0.0.1", 0)
    async with listening(app, listener, stopping=services.stopping.set, limits=limits, grace_s=1):
        yield app, listener.getsockname()[1]


@asynccontextmanager
async def sent(port: int, data: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        await writer.drain()
        yield reader, writer
    finally:
        writer.transport.abort()


async def status(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(10):
        return int((await reader.readuntil(b"\r\n\r\n"))[9:12])


def head(method: str, path: str, *, token: str | None = None, length: int = 1_000) -> bytes:
    credential = "" if token is None else f"authorization: Bearer {token}\r\n"
    return (
        f"{method} {path} HTTP/1.1\r\nhost: weir\r\ncontent-type: application/json\r\n"
        f"{credential}content-length: {length}\r\n\r\n"
    ).encode()


async def test_every_route_with_a_token_refuses_a_stranger_before_its_body_has_come(
    services: Services,
) -> None:
    patient = Limits(body_timeout_s=600, header_timeout_s=600)
    routes = routes_with_bodies()
    assert len(routes) > 30
    async with on_a_socket(services, patient) as (_, port), AsyncExitStack() as stack:
        readers = []
        for method, path in routes:
            reader, _ = await stack.enter_async_context(sent(port, head(method, path) + b"{"))
            readers.append(reader)
        answers = [await status(reader) for reader in readers]
    wrong = [(route, got) for route, got in zip(routes, answers, strict=True) if got not in (401, 404)]
    assert wrong == []
    assert answers.count(401) > 30


@pytest.mark.parametrize("path", ["/api/v1/push", "/api/v1/queues/q", "/hook/unknown", "/hook/a/b/c/d"])
async def test_an_unfinished_request_takes_no_slot(services: Services, tenant: Tenant, path: str) -> None:
    method = "PUT" if path.endswith("/q") else "POST"
    token = None if path.startswith("/hook") else tenant.token
    limits = Limits(body_timeout_s=600, max_concurrency=1)
    async with on_a_socket(services, limits) as (app, port), AsyncExitStack() as stack:
        for _ in range(5):
            await stack.enter_async_context(sent(port, head(method, path, token=token) + b"{"))
        async with sent(port, head("GET", "/livez", length=0)) as (reader, _):
            assert await status(reader) == 200
        assert app.requests.shares.total == 0


async def test_every_hot_route_takes_a_slot_once_its_caller_is_verified(
    services: Services, tenant: Tenant
) -> None:
    app = create_app(replace(services, limits=Limits(max_concurrency=1, max_polls=1)))
    app.requests.take(STRANGERS)
    app.polls.take(STRANGERS)
    async with make_client(app, tenant.token) as client:
        for route in HOT:
            path = route.path.replace("{queue}", "q").replace("{name}", "unknown")
            for method in route.endpoints:
                answer = await client.request(method, path, json={"limit": 1})
                assert answer.status_code in (429, 503), (method, path)
    async with make_client(app, "") as client:
        assert (await client.post("/api/v1/push", json=PUSH)).status_code == 401


async def test_a_tenant_that_takes_all_slots_leaves_some_for_others(
    services: Services, tenant: Tenant, other: Tenant
) -> None:
    app = create_app(replace(services, limits=Limits(max_concurrency=100)))
    for _ in range(80):
        app.requests.take(tenant.environment.holder)
    with pytest.raises(Overloaded):
        app.requests.take(tenant.environment.holder)
    async with make_client(app, tenant.token) as client:
        assert (await client.get("/api/v1/queues")).status_code == 429
        assert (await client.post("/api/v1/push", json=PUSH)).status_code == 429
    await define(services, other.environment, "q")
    async with make_client(app, other.token) as client:
        assert (await client.get("/api/v1/queues")).status_code == 200
        assert (await client.post("/api/v1/push", json=PUSH)).status_code == 201
    async with make_client(app, "") as client:
        assert (await client.get("/livez")).status_code == 200


async def test_a_token_for_many_environments_is_one_holder(services: Services, tenant: Tenant) -> None:
    assert services.tokens is not None
    new = NewToken(name="wide", role=Role.WRITE, organization=tenant.environment.organization)
    wide, _ = await services.tokens.create(new)
    app = create_app(replace(services, limits=Limits(max_concurrency=10)))
    for _ in range(8):
        app.requests.take((tenant.environment.organization, None, None))
    async with make_client(app, wide) as client:
        for number in range(3):
            headers = {"weir-project": "p", "weir-environment": f"e{number}"}
            assert (await client.post("/api/v1/push", json=PUSH, headers=headers)).status_code == 429


async def test_streams_have_a_capacity_of_their_own(
    services: Services, tenant: Tenant, other: Tenant
) -> None:
    limits = Limits(max_streams=10, max_streams_per_token=3)
    async with on_a_socket(services, limits) as (app, port), AsyncExitStack() as stack:
        answers = []
        for token in [tenant.token] * 5 + [other.token]:
            request = head("GET", "/api/v1/live", token=token, length=0)
            reader, _ = await stack.enter_async_context(sent(port, request))
            answers.append(await status(reader))
        assert answers == [200, 200, 200, 429, 429, 200]
        assert (app.streams.shares.total, app.requests.shares.total) == (4, 0)
    async with asyncio.timeout(10):
        while app.streams.shares.total:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_tenant_cannot_take_all_long_polls(services: Services, tenant: Tenant, other: Tenant) -> None:
    app = create_app(replace(services, limits=Limits(max_polls=10)))
    for _ in range(8):
        app.polls.take(tenant.environment.holder)
    for token, expected in ((tenant.token, 503), (other.token, 200)):
        async with make_client(app, token) as client:
            assert (await client.get("/api/v1/pop")).status_code == expected


async def test_a_slot_is_given_back_whatever_happens(app: Edge, tenant: Tenant) -> None:
    await tenant.client.post("/api/v1/push", json={})
    await tenant.client.put("/api/v1/queues/q", json={"ordering": "nonsense"})
    await tenant.client.get("/nowhere")
    async with make_client(app, "") as client:
        await client.post("/api/v1/push", json={})
        await client.put("/api/v1/spec", json={})
    poll = asyncio.create_task(tenant.client.get("/api/v1/pop", params={"wait_ms": 5_000}))
    await until(lambda: app.polls.shares.total)
    poll.cancel()
    await asyncio.wait({poll})
    for capacity in (app.requests, app.polls, app.streams):
        assert capacity.shares.total == 0
