"""The `Idempotency-Key` header: once is once, however often it is asked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from support.waiting import until
from weir.api.app import create_app
from weir.api.idempotency import Idempotency
from weir.api.services import Services
from weir.spec.ir import Retention

from .harness import Tenant, define, make_client


def items(queue: str, *payloads: Any) -> dict[str, Any]:
    return {"items": [{"queue": queue, "payload": payload} for payload in payloads]}


async def depth(services: Services, tenant: Tenant, queue: str) -> int:
    return (await services.broker.state(tenant.environment.queue(queue))).depth


async def test_the_same_request_again_gets_the_stored_answer(
    tenant: Tenant, services: Services, queue: str
) -> None:
    first = await tenant.client.post(
        "/api/v1/push", json=items(queue, 1, 2), headers={"idempotency-key": '"k-1"'}
    )
    again = await tenant.client.post(
        "/api/v1/push", json=items(queue, 1, 2), headers={"idempotency-key": "k-1"}
    )
    assert (again.status_code, again.content) == (201, first.content)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert await depth(services, tenant, queue) == 2


async def test_another_process_answers_with_the_first_ids(
    tenant: Tenant, services: Services, queue: str
) -> None:
    headers = {"idempotency-key": "k-2"}
    first = await tenant.client.post("/api/v1/push", json=items(queue, 1), headers=headers)
    elsewhere = create_app(replace(services, idempotency=Idempotency()))
    async with make_client(elsewhere, tenant.token) as client:
        again = await client.post("/api/v1/push", json=items(queue, 1), headers=headers)
        reused = await client.post("/api/v1/push", json=items(queue, "other"), headers=headers)
    assert again.json()["items"] == [{"status": "duplicate", "id": first.json()["items"][0]["id"]}]
    assert (reused.status_code, reused.json()["code"]) == (422, "key_reused")
    assert await depth(services, tenant, queue) == 1


async def test_another_body_under_the_same_key_is_refused(
    tenant: Tenant, services: Services, queue: str
) -> None:
    headers = {"idempotency-key": "k-3"}
    await tenant.client.post("/api/v1/push", json=items(queue, 1), headers=headers)
    reused = await tenant.client.post("/api/v1/push", json=items(queue, 1, 2), headers=headers)
    assert (reused.status_code, reused.json()["code"]) == (422, "key_reused")
    assert await depth(services, tenant, queue) == 1


async def test_a_request_whose_first_still_runs_is_in_flight(
    services: Services, tenant: Tenant, queue: str
) -> None:
    going, go = asyncio.Event(), asyncio.Event()

    class Slow:
        async def push(self, items: Any) -> list[Any]:
            going.set()
            await go.wait()
            return await services.pusher.push(items)

    async with make_client(create_app(replace(services, pusher=Slow())), tenant.token) as client:
        headers = {"idempotency-key": "k-4"}
        first = asyncio.create_task(client.post("/api/v1/push", json=items(queue, 1), headers=headers))
        await going.wait()
        second = await client.post("/api/v1/push", json=items(queue, 1), headers=headers)
        assert (second.status_code, second.json()["code"]) == (409, "in_flight")
        go.set()
        assert (await first).status_code == 201


async def test_a_refused_request_may_be_tried_again(tenant: Tenant, services: Services) -> None:
    headers = {"idempotency-key": "k-5"}
    missing = await tenant.client.post("/api/v1/push", json=items("later", 1), headers=headers)
    assert missing.status_code == 404
    await define(services, tenant.environment, "later")
    again = await tenant.client.post("/api/v1/push", json=items("later", 1), headers=headers)
    assert again.status_code == 201


async def test_what_was_refused_is_tried_again_beside_what_was_accepted(
    tenant: Tenant, services: Services, queue: str
) -> None:
    """Before, the retry got the old refusal after its cause had ended."""
    headers = {"idempotency-key": "k-7"}
    await define(services, tenant.environment, "full", retention=Retention(max_depth=1))
    body = {"items": [{"queue": name, "payload": 1} for name in (queue, "missing", "full", "full")]}
    first = await tenant.client.post("/api/v1/push", json=body, headers=headers)
    statuses = [item["status"] for item in first.json()["items"]]
    assert statuses == ["accepted", "refused", "accepted", "refused"]
    await define(services, tenant.environment, "missing")
    await tenant.client.post("/api/v1/pop", json={"queue": "full"})
    again = await tenant.client.post("/api/v1/push", json=body, headers=headers)
    found = again.json()["items"]
    assert [item["status"] for item in found] == ["duplicate", "accepted", "duplicate", "accepted"]
    assert [found[at]["id"] for at in (0, 2)] == [first.json()["items"][at]["id"] for at in (0, 2)]
    once_more = await tenant.client.post("/api/v1/push", json=body, headers=headers)
    assert (once_more.content, once_more.headers["idempotency-replayed"]) == (again.content, "true")
    assert await depth(services, tenant, queue) == 1


@pytest.mark.parametrize("key", ["", '""', "a b", "x" * 201, "\x7f", "é".encode().decode("latin-1")])
async def test_a_key_that_is_not_plain_is_malformed(client: httpx2.AsyncClient, queue: str, key: str) -> None:
    headers = {"idempotency-key": key.encode("latin-1")}
    answer = await client.post("/api/v1/push", json=items(queue, 1), headers=headers)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


async def test_keys_of_tenants_are_independent(tenant: Tenant, other: Tenant, services: Services) -> None:
    headers = {"idempotency-key": "shared"}
    for one in (tenant, other):
        await define(services, one.environment, "q")
        answer = await one.client.post("/api/v1/push", json=items("q", 1), headers=headers)
        assert answer.json()["items"][0]["status"] == "accepted"
        assert "idempotency-replayed" not in answer.headers


async def test_many_at_once_are_one_message(tenant: Tenant, services: Services, queue: str) -> None:
    headers = {"idempotency-key": "k-6"}
    answers = await asyncio.gather(
        *(tenant.client.post("/api/v1/push", json=items(queue, 1), headers=headers) for _ in range(50))
    )
    assert {answer.status_code for answer in answers} <= {201, 409}
    ids = {answer.json()["items"][0]["id"] for answer in answers if answer.status_code == 201}
    assert len(ids) == 1
    assert await depth(services, tenant, queue) == 1


async def test_the_two_kinds_of_keys_exclude_each_other(client: httpx2.AsyncClient, queue: str) -> None:
    body = {"items": [{"queue": queue, "payload": 1, "idempotency_key": "mine"}]}
    answer = await client.post("/api/v1/push", json=body, headers={"idempotency-key": "k"})
    assert answer.status_code == 422


async def test_a_key_is_remembered_for_the_window_that_its_item_asks_for(
    tenant: Tenant, services: Services, queue: str
) -> None:
    item = {"queue": queue, "payload": 1, "idempotency_key": "k"}

    async def status(**options: Any) -> str:
        answer = await tenant.client.post("/api/v1/push", json={"items": [{**item, **options}]})
        found: str = answer.json()["items"][0]["status"]
        return found

    async def is_forgotten() -> bool:
        return await status(idempotency_window_ms=600_000, headers={"a": "b"}) == "accepted"

    assert await status(idempotency_window_ms=1) == "accepted"
    # The first window ends by Redis' clock; until then a push is a duplicate and changes nothing.
    await until(is_forgotten)
    assert await status() == "duplicate"


@pytest.mark.parametrize(
    "item",
    [
        {"idempotency_window_ms": 1_000},
        {"idempotency_key": "k", "idempotency_window_ms": 0},
        {"idempotency_key": "k", "idempotency_window_ms": True},
        {"idempotency_key": "k", "idempotency_window_ms": "1"},
        {"idempotency_key": "k", "idempotency_window_ms": 10**15},
    ],
)
async def test_a_window_that_cannot_be_is_refused(tenant: Tenant, queue: str, item: dict[str, Any]) -> None:
    body = {"items": [{"queue": queue, "payload": 1, **item}]}
    answer = await tenant.client.post("/api/v1/push", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "#/items/0/idempotency_window_ms"
