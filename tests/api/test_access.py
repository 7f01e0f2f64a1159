"""Tokens: roles, scopes, expiry, rotation, revocation, and PostgreSQL's absence."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from weir.api.app import create_app
from weir.api.edge import Edge
from weir.api.services import Services
from weir.control.authentication import CachedAuthenticator
from weir.control.principals import Role
from weir.control.tokens import NewToken
from weir.errors import ControlUnavailable

from .harness import Tenant, define, make_client, make_token


def one(queue: str) -> dict[str, Any]:
    return {"items": [{"queue": queue, "payload": 1}]}


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic eDp5",
        "Bearer weir_x",
        "Bearer weir_prod_000000000000_00000000000000000000000000000000_000000",
        "Bearer ' OR 1=1 --",
        "Bearer \xe9\xe9",
        "Bearer x\r\nweir-organization: y",
        "Bearer x\x00",
        "Bearer " + "x" * 60_000,
    ],
)
async def test_what_is_no_token_is_refused_alike(app: Edge, tenant: Tenant, header: str | None) -> None:
    async with make_client(app, "") as client:
        del client.headers["authorization"]
        headers = {} if header is None else {"authorization": header.encode("latin-1")}
        for path in ("/api/v1/push", "/api/v1/tokens"):
            answer = await client.post(path, json={}, headers=headers)  # type: ignore[arg-type]
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
            assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_wrong_secret_is_refused_like_an_unknown_token(app: Edge, tenant: Tenant) -> None:
    swapped = tenant.token[:-8] + ("0" if tenant.token[-8] != "0" else "1") + tenant.token[-7:]
    async with make_client(app, swapped) as client:
        answer = await client.get("/api/v1/queues")
    assert answer.status_code == 401


async def test_a_reader_may_not_write_and_a_writer_may_not_administer(
    app: Edge, services: Services, tenant: Tenant, queue: str
) -> None:
    reader = await make_token(services, tenant.environment, Role.READ)
    writer = await make_token(services, tenant.environment, Role.WRITE)
    async with make_client(app, reader) as client:
        assert (await client.get("/api/v1/queues")).status_code == 200
        assert (await client.post("/api/v1/push", json=one(queue))).status_code == 403
        assert (await client.get("/api/v1/pop")).status_code == 403
        assert (await client.post(f"/api/v1/queues/{quote(queue, safe='')}/pause")).status_code == 403
    async with make_client(app, writer) as client:
        assert (await client.post("/api/v1/push", json=one(queue))).status_code == 201
        assert (await client.put("/api/v1/queues/new", json={})).status_code == 403
        assert (await client.get("/api/v1/tokens")).status_code == 403
        assert (await client.get("/api/v1/audit-log")).status_code == 403


async def test_an_expired_token_is_refused(app: Edge, services: Services, tenant: Tenant) -> None:
    token = await make_token(services, tenant.environment, Role.READ, lifetime_ms=1)
    async with make_client(app, token) as client:
        assert (await client.get("/api/v1/queues")).status_code == 401


async def test_a_revoked_token_is_refused_at_once(app: Edge, tenant: Tenant) -> None:
    made = (await tenant.client.post("/api/v1/tokens", json={"name": "t", "role": "write"})).json()
    async with make_client(app, made["token"]) as client:
        assert (await client.get("/api/v1/queues")).status_code == 200
        assert (await tenant.client.delete(f"/api/v1/tokens/{made['id']}")).status_code == 204
        assert (await client.get("/api/v1/queues")).status_code == 401
    assert (await tenant.client.delete(f"/api/v1/tokens/{made['id']}")).status_code == 404


async def test_a_rotated_token_has_a_successor_and_a_grace(app: Edge, tenant: Tenant) -> None:
    made = (await tenant.client.post("/api/v1/tokens", json={"name": "t", "role": "read"})).json()
    path = f"/api/v1/tokens/{made['id']}/rotate"
    second = (await tenant.client.post(path, json={"grace_ms": 60_000})).json()
    assert (second["replaces"], second["role"]) == (made["id"], "read")
    for token in (made["token"], second["token"]):
        async with make_client(app, token) as client:
            assert (await client.get("/api/v1/queues")).status_code == 200
    await tenant.client.post(path, json={"grace_ms": 0})
    async with make_client(app, made["token"]) as client:
        assert (await client.get("/api/v1/queues")).status_code == 401


async def test_tokens_cannot_reach_beyond_their_own_scope(tenant: Tenant, other: Tenant) -> None:
    body = {"name": "t", "role": "admin", "environment": other.environment.environment, "project": "x"}
    assert (await tenant.client.post("/api/v1/tokens", json=body)).status_code == 403
    theirs = (await other.client.get("/api/v1/tokens")).json()["items"][0]
    for method, path in (("DELETE", ""), ("POST", "/rotate")):
        answer = await tenant.client.request(method, f"/api/v1/tokens/{theirs['id']}{path}", json={})
        assert answer.status_code == 404
    ours = (await tenant.client.get("/api/v1/tokens")).json()["items"]
    assert {token["organization"] for token in ours} == {tenant.environment.organization}
    assert all("secret" not in name for token in ours for name in token)


async def test_a_wide_token_chooses_its_environment(
    app: Edge, services: Services, tenant: Tenant, queue: str
) -> None:
    assert services.tokens is not None
    wide, _ = await services.tokens.create(
        NewToken(name="wide", role=Role.ADMIN, organization=tenant.environment.organization)
    )
    headers = {
        "weir-project": quote(tenant.environment.project),
        "weir-environment": quote(tenant.environment.environment),
    }
    async with make_client(app, wide) as client:
        assert (await client.post("/api/v1/push", json=one(queue))).status_code == 422
        assert (await client.get("/api/v1/queues", headers={"weir-project": "p"})).status_code == 422
        assert (await client.post("/api/v1/push", json=one(queue), headers=headers)).status_code == 201
        assert len((await client.get("/api/v1/queues", headers=headers)).json()["items"]) == 1
        foreign = {**headers, "weir-organization": "someone-else"}
        assert (await client.post("/api/v1/push", json=one(queue), headers=foreign)).status_code == 404
        broken = {**headers, "weir-environment": "%ff"}
        assert (await client.get("/api/v1/queues", headers=broken)).status_code == 422


async def test_known_tokens_hold_while_postgres_is_away(
    services: Services, tenant: Tenant, queue: str
) -> None:
    assert services.tokens is not None
    away = False
    find = services.tokens.find

    class Register:
        async def find(self, token_id: str) -> Any:
            if away:
                raise ControlUnavailable("PostgreSQL is away", retry_after_s=1)
            return await find(token_id)

    now = 0.0
    authenticator = CachedAuthenticator(
        Register(),  # type: ignore[arg-type]
        fresh_s=10,
        stale_s=100,
        monotonic=lambda: now,
    )
    app = create_app(replace(services, authenticator=authenticator))
    stranger = await make_token(services, tenant.environment, Role.WRITE)
    async with make_client(app, tenant.token) as client:
        assert (await client.post("/api/v1/push", json=one(queue))).status_code == 201
        away, now = True, 50.0
        assert (await client.post("/api/v1/push", json=one(queue))).status_code == 201
        async with make_client(app, stranger) as unknown:
            answer = await unknown.post("/api/v1/push", json=one(queue))
            assert (answer.status_code, answer.json()["code"]) == (503, "control_unavailable")
        now = 101.0
        assert (await client.post("/api/v1/push", json=one(queue))).status_code == 503


async def test_a_known_token_waits_once_for_a_postgres_that_hangs_and_is_refreshed_behind_its_back(
    services: Services, tenant: Tenant
) -> None:
    assert services.tokens is not None
    find, answering, asked, now = services.tokens.find, asyncio.Event(), 0, 0.0
    answering.set()

    class Register:
        async def find(self, token_id: str) -> Any:
            nonlocal asked
            asked += 1
            await answering.wait()
            return await find(token_id)

    authenticator = CachedAuthenticator(
        Register(),  # type: ignore[arg-type]
        fresh_s=10,
        stale_s=100,
        monotonic=lambda: now,
    )
    known = await authenticator.authenticate(tenant.token)
    answering.clear()
    now = 20.0
    waits = []
    for _ in range(3):
        started = time.monotonic()
        assert await authenticator.authenticate(tenant.token) is known
        waits.append(time.monotonic() - started)
    assert asked == 2
    assert 0.4 < waits[0] < 2
    assert sum(waits[1:]) < 0.4
    answering.set()
    async with asyncio.timeout(5):
        while authenticator._reading:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert await authenticator.authenticate(tenant.token) == known
    assert asked == 2


async def test_use_is_remembered(services: Services, tenant: Tenant) -> None:
    await tenant.client.get("/api/v1/queues")
    assert isinstance(services.authenticator, CachedAuthenticator)
    await services.authenticator.flush_last_used()
    (token,) = (await tenant.client.get("/api/v1/tokens")).json()["items"]
    assert token["last_used_at_ms"] >= token["created_at_ms"]


async def test_changes_are_audited_for_their_own_scope(tenant: Tenant, other: Tenant) -> None:
    await tenant.client.put("/api/v1/queues/audited", json={"concurrency": 3})
    entries = (await tenant.client.get("/api/v1/audit-log")).json()["items"]
    assert (entries[0]["action"], entries[0]["target"]) == ("queue.define", "audited")
    assert entries[0]["details"]["concurrency"] == 3
    assert (await other.client.get("/api/v1/audit-log")).json()["items"] == []


async def test_queues_are_defined_shown_paused_and_forgotten(tenant: Tenant, services: Services) -> None:
    client, path = tenant.client, "/api/v1/queues/a%2Fb%3A%20%E2%9C%93"
    body = {"ordering": "per_key", "concurrency": 8, "delivery": {"max_attempts": 3}}
    defined = (await client.put(path, json=body)).json()
    assert (defined["name"], defined["limit"], defined["utilization_pct"]) == ("a/b: ✓", 8, 0)
    assert defined["definition"]["delivery"]["max_attempts"] == 3
    assert (await client.post(f"{path}/pause")).json()["paused"] is True
    assert (await client.get(path)).json()["paused"] is True
    assert services.definitions is not None
    kept = await services.definitions.find(tenant.environment.queue("a/b: ✓"))
    assert kept is not None
    assert (kept.paused, kept.spec.concurrency) == (True, 8)
    assert (await client.post(f"{path}/resume")).json()["paused"] is False
    assert (await client.delete(path)).status_code == 204
    assert (await client.get(path)).status_code == 404


async def test_a_queue_with_messages_is_not_forgotten(client: httpx2.AsyncClient, queue: str) -> None:
    await client.post("/api/v1/push", json=one(queue))
    assert (await client.delete(f"/api/v1/queues/{quote(queue, safe='')}")).status_code == 409


async def test_tenants_see_their_own_queues_alone(tenant: Tenant, other: Tenant, services: Services) -> None:
    for side in (tenant, other):
        await define(services, side.environment, "same")
    await tenant.client.post("/api/v1/push", json=one("same"))
    assert (await other.client.get("/api/v1/queues/same")).json()["depth"] == 0
    assert (await other.client.get("/api/v1/pop")).json() == {"messages": []}
    popped = (await tenant.client.get("/api/v1/pop")).json()["messages"][0]
    lease = {name: popped[name] for name in ("queue", "id", "lease")}
    assert (await other.client.post("/api/v1/ack", json=lease)).status_code == 409
    assert (await tenant.client.post("/api/v1/ack", json=lease)).status_code == 200
