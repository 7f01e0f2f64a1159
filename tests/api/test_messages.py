"""Push, pop and settle over HTTP: what goes in comes out, byte for byte, with an answer for every item."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any
from urllib.parse import quote

import httpx2
import orjson
import pytest

from support.lives import emitted_lives
from weir.api.services import Services
from weir.broker.redis import RedisBroker
from weir.spec.ir import DeliveryPolicy, Retention

from .harness import Tenant, define


async def push(client: httpx2.AsyncClient, *items: dict[str, Any], **headers: str) -> httpx2.Response:
    return await client.post("/api/v1/push", json={"items": list(items)}, headers=headers)


async def pop_one(client: httpx2.AsyncClient, queue: str, **options: Any) -> dict[str, Any]:
    answer = await client.post("/api/v1/pop", json={"queue": queue, **options})
    (message,) = answer.json()["messages"]
    return dict(message)


def lease_of(message: dict[str, Any]) -> dict[str, str]:
    return {name: message[name] for name in ("queue", "id", "lease")}


async def test_a_pushed_message_is_popped_and_acked(client: httpx2.AsyncClient, queue: str) -> None:
    pushed = await push(client, {"queue": queue, "payload": {"n": 1}, "key": "k", "headers": {"a": "b"}})
    assert pushed.status_code == 201
    (item,) = pushed.json()["items"]
    assert item["status"] == "accepted"
    message = await pop_one(client, queue)
    assert message["id"] == item["id"]
    assert (message["payload"], message["key"], message["headers"]) == ({"n": 1}, "k", {"a": "b"})
    assert message["attempt"] == 1
    acked = await client.post("/api/v1/ack", json=lease_of(message))
    assert (acked.status_code, acked.json()["status"]) == (200, "acked")
    again = await client.post("/api/v1/ack", json=lease_of(message))
    assert (again.status_code, again.json()) == (200, acked.json())
    late = await client.post("/api/v1/nack", json=lease_of(message))
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")


@pytest.mark.parametrize(
    "text",
    [
        b"123456789012345678901234567890",
        b"1.10",
        b"1E5",
        b'{ "b" : 1,\n  "a": [1.0, 2e-7, "\\u00e9\xc3\xa9\\"", null] }',
        b'"text"',
        b"null",
        b"true",
        b'{"a":1,"a":2}',
    ],
)
async def test_a_json_payload_comes_out_byte_for_byte(
    client: httpx2.AsyncClient, queue: str, text: bytes
) -> None:
    body = b'{ "items" : [ {"payload": ' + text + b' , "queue": ' + orjson.dumps(queue) + b"} ] }"
    pushed = await client.post("/api/v1/push", content=body, headers={"content-type": "application/json"})
    assert pushed.status_code == 201, pushed.text
    popped = await client.post("/api/v1/pop", json={"queue": queue})
    assert b'"payload":' + text + b',"headers"' in popped.content


@pytest.mark.parametrize(("digits", "status"), [(308, 201), (310, 400), (900_000, 400)])
async def test_a_number_is_as_large_as_a_double_or_refused(
    client: httpx2.AsyncClient, queue: str, digits: int, status: int
) -> None:
    body = b'{"items": [{"payload": %s, "queue": %s}]}' % (b"9" * digits, orjson.dumps(queue))
    pushed = await client.post("/api/v1/push", content=body, headers={"content-type": "application/json"})
    assert pushed.status_code == status
    if status == 400:
        assert pushed.json()["code"] == "malformed"


async def test_a_raw_body_is_the_payload(client: httpx2.AsyncClient, queue: str) -> None:
    raw = bytes(range(256))
    path = f"/api/v1/queues/{quote(queue, safe='')}/messages"
    pushed = await client.post(path, content=raw, params={"priority": 9, "key": "k"})
    assert (pushed.status_code, pushed.json()["status"]) == (201, "accepted")
    message = await pop_one(client, queue)
    assert base64.b64decode(message["payload_base64"]) == raw
    assert (message["priority"], message["key"]) == (9, "k")
    assert message["headers"] == {"content-type": "application/octet-stream"}


async def test_a_raw_json_body_keeps_its_bytes_and_is_checked(client: httpx2.AsyncClient, queue: str) -> None:
    path = f"/api/v1/queues/{quote(queue, safe='')}/messages"
    json_type = {"content-type": "application/json"}
    assert (await client.post(path, content=b'{"a": 1.50}', headers=json_type)).status_code == 201
    popped = await client.get("/api/v1/pop", params={"queue": queue})
    assert b'"payload":{"a": 1.50}' in popped.content
    assert (await client.post(path, content=b'{"a": ', headers=json_type)).status_code == 400


async def test_json_that_curl_calls_a_form_is_taken_as_json(client: httpx2.AsyncClient, queue: str) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    path = f"/api/v1/queues/{quote(queue, safe='')}/messages"
    body = json.dumps({"items": [{"queue": queue, "payload": {"n": 2}}]})
    assert (await client.post(path, content=b'{"n":1}', headers=form)).status_code == 201
    assert (await client.post("/api/v1/push", content=body, headers=form)).status_code == 201
    first, second = await pop_one(client, queue), await pop_one(client, queue)
    assert [first["payload"], second["payload"]] == [{"n": 1}, {"n": 2}]
    assert first["headers"] == {}


async def test_a_form_stays_a_form(client: httpx2.AsyncClient, queue: str) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    path = f"/api/v1/queues/{quote(queue, safe='')}/messages"
    assert (await client.post(path, content=b"n=1", headers=form)).status_code == 201
    message = await pop_one(client, queue)
    assert base64.b64decode(message["payload_base64"]) == b"n=1"
    assert message["headers"] == form


async def test_binary_travels_as_base64(client: httpx2.AsyncClient, queue: str) -> None:
    text = base64.b64encode(b"\x00\xff").decode()
    assert (await push(client, {"queue": queue, "payload_base64": text})).status_code == 201
    assert (await pop_one(client, queue))["payload_base64"] == text


async def test_a_mixed_batch_is_answered_item_by_item(tenant: Tenant, services: Services, queue: str) -> None:
    full = await define(services, tenant.environment, "full", retention=Retention(max_depth=1))
    answer = await push(
        tenant.client,
        {"queue": full, "payload": 1},
        {"queue": queue, "payload": 2},
        {"queue": full, "payload": 3},
        {"queue": "nobody", "payload": 4},
    )
    assert answer.status_code == 201
    statuses = [(item["status"], item.get("problem", {}).get("code")) for item in answer.json()["items"]]
    assert statuses == [
        ("accepted", None),
        ("accepted", None),
        ("refused", "queue_full"),
        ("refused", "not_found"),
    ]


async def test_a_full_queue_answers_503_with_a_delay(tenant: Tenant, services: Services) -> None:
    full = await define(services, tenant.environment, "full", retention=Retention(max_depth=1))
    await push(tenant.client, {"queue": full, "payload": 1})
    refused = await push(tenant.client, {"queue": full, "payload": 2})
    assert (refused.status_code, refused.json()["code"]) == (503, "queue_full")
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["content-type"] == "application/problem+json"


async def test_an_unknown_queue_is_not_found(client: httpx2.AsyncClient, tenant: Tenant) -> None:
    answer = await push(client, {"queue": "nobody", "payload": 1})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_a_pop_without_a_queue_serves_the_whole_environment(
    tenant: Tenant, services: Services, queue: str
) -> None:
    second = await define(services, tenant.environment, "second")
    await push(tenant.client, {"queue": queue, "payload": 1}, {"queue": second, "payload": 2})
    answer = await tenant.client.get("/api/v1/pop", params={"limit": 10})
    assert {message["queue"] for message in answer.json()["messages"]} == {queue, second}


async def test_a_long_poll_gets_what_arrives_meanwhile(client: httpx2.AsyncClient, queue: str) -> None:
    waiting = asyncio.create_task(client.get("/api/v1/pop", params={"queue": queue, "wait_ms": 20_000}))
    while not waiting.done():
        await push(client, {"queue": queue, "payload": 1})
        await asyncio.wait({waiting}, timeout=0.05)
    assert len((await waiting).json()["messages"]) == 1


async def test_a_long_poll_ends_when_its_time_is_over(client: httpx2.AsyncClient, queue: str) -> None:
    answer = await client.get("/api/v1/pop", params={"queue": queue, "wait_ms": 30})
    assert (answer.status_code, answer.json()) == (200, {"messages": []})


async def test_a_long_poll_ends_when_the_process_stops(
    client: httpx2.AsyncClient, services: Services, queue: str
) -> None:
    waiting = asyncio.create_task(client.get("/api/v1/pop", params={"queue": queue, "wait_ms": 30_000}))
    await asyncio.sleep(0)
    services.stopping.set()
    answer = await asyncio.wait_for(waiting, 5)
    assert answer.json() == {"messages": []}


async def test_a_nacked_message_returns_and_dies_after_its_attempts(
    tenant: Tenant, services: Services
) -> None:
    twice = DeliveryPolicy(max_attempts=2, initial_backoff_ms=0, max_backoff_ms=0)
    queue = await define(services, tenant.environment, "twice", delivery=twice)
    await push(tenant.client, {"queue": queue, "payload": 1})
    first = await pop_one(tenant.client, queue)
    answer = await tenant.client.post("/api/v1/nack", json={**lease_of(first), "error": "no"})
    assert answer.json()["status"] == "nacked"
    second = await pop_one(tenant.client, queue, wait_ms=5_000)
    assert (second["attempt"], second["last_error"]) == (2, "no")
    answer = await tenant.client.post("/api/v1/nack", json={**lease_of(second), "delay_ms": 0})
    assert answer.json()["status"] == "dead"


async def test_a_message_can_be_given_up_at_once(client: httpx2.AsyncClient, queue: str) -> None:
    await push(client, {"queue": queue, "payload": 1})
    message = await pop_one(client, queue)
    answer = await client.post("/api/v1/nack", json={**lease_of(message), "dead_letter": True})
    assert (answer.status_code, answer.json()["status"]) == (200, "dead")


async def test_a_lease_can_be_extended_until_it_is_lost(client: httpx2.AsyncClient, queue: str) -> None:
    await push(client, {"queue": queue, "payload": 1})
    message = await pop_one(client, queue, lease_ms=1_000)
    extended = await client.post("/api/v1/extend", json={**lease_of(message), "lease_ms": 60_000})
    assert extended.status_code == 200
    assert extended.json()["lease_until_ms"] > message["lease_until_ms"]
    foreign = {**lease_of(message), "lease": "someone-else", "lease_ms": 1_000}
    assert (await client.post("/api/v1/extend", json=foreign)).status_code == 409


async def test_a_batch_of_acks_is_answered_item_by_item(client: httpx2.AsyncClient, queue: str) -> None:
    await push(client, {"queue": queue, "payload": 1}, {"queue": queue, "payload": 2})
    messages = (await client.get("/api/v1/pop", params={"queue": queue, "limit": 2})).json()["messages"]
    done, failed = messages
    answer = await client.post(
        "/api/v1/ack/batch",
        json={
            "acknowledgments": [
                lease_of(done),
                {**lease_of(failed), "status": "failed", "error": "bad day"},
                lease_of(done),
            ]
        },
    )
    assert answer.status_code == 200
    statuses = sorted(item["status"] for item in answer.json()["items"])
    assert statuses == ["acked", "lapsed", "nacked"]
    assert answer.json()["items"][1] == {"id": failed["id"], "status": "nacked"}


async def test_a_delayed_message_waits(client: httpx2.AsyncClient, queue: str) -> None:
    await push(client, {"queue": queue, "payload": 1, "delay_ms": 3_600_000})
    assert (await client.get("/api/v1/pop", params={"queue": queue})).json() == {"messages": []}
    shown = (await client.get(f"/api/v1/queues/{quote(queue, safe='')}")).json()
    assert (shown["depth"], shown["delayed"]) == (1, 1)


async def test_an_ack_and_a_nack_tell_how_long_the_handler_ran(tenant: Tenant, services: Services) -> None:
    queue = await define(services, tenant.environment, "timed", delivery=DeliveryPolicy(max_attempts=1))
    items = [{"queue": queue, "payload": n} for n in range(4)]
    await tenant.client.post("/api/v1/push", json={"items": items})
    answer = await tenant.client.post("/api/v1/pop", json={"queue": queue, "limit": 4})
    leases = [{"queue": queue, "id": one["id"], "lease": one["lease"]} for one in answer.json()["messages"]]
    for verb, body in (
        ("ack", {**leases[0], "handler_ms": 42}),
        ("ack/batch", {"acknowledgments": [{**leases[1], "handler_ms": 0}]}),
        ("nack", {**leases[2], "handler_ms": 7}),
        ("ack", leases[3]),
    ):
        assert (await tenant.client.post(f"/api/v1/{verb}", json=body)).status_code == 200
    assert isinstance(services.broker, RedisBroker)
    lives = await emitted_lives(services.broker, tenant.environment.queue(queue))
    assert [life.handler_ms for life in lives] == [42, 0, 7, None]
    for wrong in (-1, "soon", 1 << 32):
        body = {**leases[0], "handler_ms": wrong}
        assert (await tenant.client.post("/api/v1/ack", json=body)).status_code == 422
