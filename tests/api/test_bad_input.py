"""Bad input never becomes a 500: every row is a problem with the right status, and nothing was pushed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from weir.api.app import create_app
from weir.api.limits import Limits
from weir.api.services import Services
from weir.model.ids import new_id

from .harness import Tenant, make_client

JSON = {"content-type": "application/json"}
RESCHEDULE = "/api/v1/messages/01a1ee35-eef4-759a-9847-2b1214f8bdf8/reschedule"


def assert_problem(answer: httpx2.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["type"] == f"urn:weir:problem:{problem['code']}"
    assert problem["instance"] == f"urn:uuid:{answer.headers['request-id']}"
    return dict(problem)


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * 100_000,
        b"[" * 1_000_000,
        b"NaN",
        b"Infinity",
        b"1e999",
        b'"\\ud800"',
        b"\xff",
        b"{,}",
        b"",
        b"'a'",
    ],
    ids=["deep", "1MB of [", "NaN", "Infinity", "1e999", "surrogate", "not UTF-8", "comma", "none", "quotes"],
)
async def test_a_body_that_is_not_json_is_malformed(client: httpx2.AsyncClient, payload: bytes) -> None:
    body = b'{"items":[{"queue":"q","payload":' + payload + b"}]}"
    assert_problem(await client.post("/api/v1/push", content=body, headers=JSON), 400)


async def test_a_byte_order_mark_is_malformed(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/api/v1/push", content=b"\xef\xbb\xbf{}", headers=JSON)
    assert_problem(answer, 400)


@pytest.mark.parametrize("levels", [64, 65, 1_000])
async def test_payloads_may_nest_sixty_four_levels(
    client: httpx2.AsyncClient, queue: str, levels: int
) -> None:
    payload = b"[" * levels + b"]" * levels
    body = b'{"items":[{"queue":' + json.dumps(queue).encode() + b',"payload":' + payload + b"}]}"
    answer = await client.post("/api/v1/push", content=body, headers=JSON)
    assert answer.status_code == (201 if levels == 64 else 413)


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ([], "#"),
        ({}, "#/items"),
        ({"items": []}, "#/items"),
        ({"items": [3]}, "#/items/0"),
        ({"items": [{"payload": 1}]}, "#/items/0/queue"),
        ({"items": [{"queue": "q", "payload": 1}, {"queue": "q"}]}, "#/items/1/payload"),
        ({"items": [{"queue": "q", "payload": 1, "payload_base64": ""}]}, "#/items/0/payload"),
        ({"items": [{"queue": "q", "payload_base64": "%%%"}]}, "#/items/0/payload_base64"),
        ({"items": [{"queue": "q", "payload": 1, "priority": 10}]}, "#/items/0/priority"),
        ({"items": [{"queue": "q", "payload": 1, "priority": True}]}, "#/items/0/priority"),
        ({"items": [{"queue": "q", "payload": 1, "priority": 1.0}]}, "#/items/0/priority"),
        ({"items": [{"queue": "q", "payload": 1, "key": 7}]}, "#/items/0/key"),
        ({"items": [{"queue": "q", "payload": 1, "key": "a", "partition": "b"}]}, "#/items/0/partition"),
        ({"items": [{"queue": "q", "payload": 1, "headers": {"a": 1}}]}, "#/items/0/headers"),
        ({"items": [{"queue": "q", "payload": 1, "ttl_ms": 0}]}, "#/items/0/ttl_ms"),
        ({"items": [{"queue": "q", "payload": 1, "deliver_at_ms": -1}]}, "#/items/0/deliver_at_ms"),
        ({"items": [{"queue": "q", "payload": 1, "surprise": 1}]}, "#/items/0"),
        ({"items": [{"queue": "q", "payload": 1}], "surprise": 1}, "#"),
        ({"items": [{"queue": "é" * 200, "payload": 1}]}, "#/items/0/queue"),
    ],
)
async def test_wrong_fields_are_named(client: httpx2.AsyncClient, document: Any, pointer: str) -> None:
    problem = assert_problem(await client.post("/api/v1/push", json=document), 422)
    assert problem["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("name", ["a\x00b", "a\nb", "\x7f"])
async def test_control_characters_in_names_are_refused(client: httpx2.AsyncClient, name: str) -> None:
    items = [{"queue": name, "payload": 1}]
    assert_problem(await client.post("/api/v1/push", json={"items": items}), 422)
    assert_problem(await client.post("/api/v1/pop", json={"queue": name}), 422)


async def test_a_batch_over_a_thousand_is_refused(client: httpx2.AsyncClient, queue: str) -> None:
    items = [{"queue": queue, "payload": 1}] * 1_001
    assert_problem(await client.post("/api/v1/push", json={"items": items}), 422)
    assert (await client.get("/api/v1/pop", params={"queue": queue})).json() == {"messages": []}


async def test_one_bad_item_stops_the_whole_batch(client: httpx2.AsyncClient, queue: str) -> None:
    items = [{"queue": queue, "payload": 1}, {"queue": queue, "payload": 2, "priority": "high"}]
    assert_problem(await client.post("/api/v1/push", json={"items": items}), 422)
    assert (await client.get("/api/v1/pop", params={"queue": queue})).json() == {"messages": []}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/pop", {"limit": 0}),
        ("/api/v1/pop", {"limit": 1_001}),
        ("/api/v1/pop", {"wait_ms": 600_001}),
        ("/api/v1/pop", {"lease_ms": 1}),
        ("/api/v1/ack", {}),
        ("/api/v1/ack", {"queue": "q", "id": "not an id", "lease": "x"}),
        ("/api/v1/ack", {"queue": "q", "id": new_id(), "lease": ""}),
        ("/api/v1/ack", {"queue": "q", "id": new_id(), "lease": "x", "status": "maybe"}),
        ("/api/v1/ack/batch", {"acknowledgments": []}),
        ("/api/v1/nack", {"queue": "q", "id": new_id(), "lease": "x", "delay_ms": -1}),
        ("/api/v1/extend", {"queue": "q", "id": new_id(), "lease": "x"}),
        ("/api/v1/revoked", {}),
        ("/api/v1/revoked", {"leases": []}),
        ("/api/v1/revoked", {"leases": [{"queue": "q", "id": new_id(), "lease": "x", "more": 1}]}),
    ],
)
async def test_wrong_requests_are_invalid(client: httpx2.AsyncClient, path: str, body: Any) -> None:
    assert_problem(await client.post(path, json=body), 422)


@pytest.mark.parametrize("query", ["limit=x", "limit=1&limit=2", "surprise=1", "wait_ms=-1"])
async def test_wrong_queries_are_invalid(client: httpx2.AsyncClient, query: str) -> None:
    assert_problem(await client.get(f"/api/v1/pop?{query}"), 422)


@pytest.mark.parametrize("path", ["/api/v1/push", "/api/v1/pop", "/api/v1/ack/batch", "/api/v1/tokens"])
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
async def test_other_content_types_are_not_taken(client: httpx2.AsyncClient, path: str, kind: str) -> None:
    answer = await client.post(path, content=b"a=1", headers={"content-type": kind})
    assert_problem(answer, 415)


@pytest.mark.parametrize("kind", [None, "", "application/x-www-form-urlencoded; charset=utf-8"])
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/api/v1/push", {"items": [{"queue": "untyped", "payload": 1}]}, 201),
        ("POST", "/api/v1/pop", {"queue": "untyped"}, 200),
        ("POST", "/api/v1/ack", {"queue": "untyped", "id": new_id(), "lease": "x"}, 409),
        ("PUT", "/api/v1/queues/untyped", {"retention": {"max_depth": 10}}, 200),
        ("POST", RESCHEDULE, {"delay_ms": 5}, 404),
        ("POST", RESCHEDULE, {"delay_ms": "soon"}, 422),
    ],
)
async def test_json_is_json_also_if_its_type_does_not_say_so(
    client: httpx2.AsyncClient, method: str, path: str, body: Any, status: int, kind: str | None
) -> None:
    await client.put("/api/v1/queues/untyped", json={})
    headers = {} if kind is None else {"content-type": kind}
    answer = await client.request(method, path, content=json.dumps(body).encode(), headers=headers)
    assert answer.status_code == status, answer.text


async def test_compressed_bodies_are_not_taken(client: httpx2.AsyncClient) -> None:
    headers = {**JSON, "content-encoding": "gzip"}
    assert_problem(await client.post("/api/v1/push", content=b"\x1f\x8b", headers=headers), 415)
    assert_problem(await client.put("/api/v1/queues/q", content=b"\x1f\x8b", headers=headers), 415)


async def test_an_empty_body_is_malformed(client: httpx2.AsyncClient) -> None:
    assert_problem(await client.post("/api/v1/push", content=b"", headers=JSON), 400)


@pytest.mark.parametrize("path", ["/api/v1/push", "/api/v1/ack", "/livez", "/api/v1/queues"])
async def test_other_methods_are_not_allowed(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.request("PATCH", path)
    assert_problem(answer, 405)
    assert answer.headers["allow"]


@pytest.mark.parametrize("path", ["/nope", "/api/v1", "/api/v1/push/", "/api/v2/push", "//"])
async def test_unknown_routes_are_not_found(client: httpx2.AsyncClient, path: str) -> None:
    assert_problem(await client.post(f"http://weir{path}", json={}), 404)


async def test_a_path_that_is_not_utf8_is_malformed(client: httpx2.AsyncClient) -> None:
    assert_problem(await client.get("/api/v1/queues/%ff"), 400)


async def test_a_body_over_the_limit_is_too_large(services: Services, tenant: Tenant) -> None:
    app = create_app(replace(services, limits=Limits(max_body_bytes=100)))
    async with make_client(app, tenant.token) as client:
        fits = await client.post("/api/v1/push", content=b" " * 100, headers=JSON)
        assert fits.status_code == 400
        for path in ("/api/v1/push", "/api/v1/tokens"):
            answer = await client.post(path, content=b" " * 101, headers=JSON)
            assert_problem(answer, 413)
            assert answer.headers["connection"] == "close"


async def test_too_many_requests_at_once_are_put_off(services: Services, tenant: Tenant) -> None:
    app = create_app(replace(services, limits=Limits(max_concurrency=1)))
    app.requests.take(tenant.environment.holder)
    async with make_client(app, tenant.token) as client:
        answer = await client.post("/api/v1/push", json={})
        assert_problem(answer, 429)
        assert int(answer.headers["retry-after"]) >= 1
        app.requests.shares.give_back(tenant.environment.holder)
        assert_problem(await client.post("/api/v1/push", json={}), 422)
    assert app.requests.shares.total == 0


async def test_an_unforeseen_error_is_a_bare_500(services: Services, tenant: Tenant) -> None:
    class Broken:
        async def push(self, items: object) -> list[Any]:
            raise RuntimeError("secret detail")

    app = create_app(replace(services, pusher=Broken()))
    async with make_client(app, tenant.token) as client:
        answer = await client.post("/api/v1/push", json={"items": [{"queue": "q", "payload": 1}]})
    problem = assert_problem(answer, 500)
    assert "secret" not in answer.text
    assert problem["code"] == "internal"
