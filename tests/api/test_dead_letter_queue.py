"""Dead letter queues and handler timeouts over HTTP: set, shown, and refused where they cannot hold."""

from __future__ import annotations

from typing import Any

import pytest

from weir.api.services import Services
from weir.spec.ir import EnqueueTo, MessageField

from .harness import Tenant, define


async def test_what_is_set_is_shown_and_kept(tenant: Tenant, services: Services) -> None:
    client = tenant.client
    await client.put("/api/v1/queues/parked", json={"retention": {"max_age_ms": 14 * 86_400_000}})
    delivery = {"dead_letter_queue": "parked", "handler_timeout_ms": 20_000}
    defined = await client.put("/api/v1/queues/orders", json={"delivery": delivery})
    shown = (await client.get("/api/v1/queues/orders")).json()["definition"]
    assert defined.json()["definition"] == shown
    assert {name: shown["delivery"][name] for name in delivery} == delivery
    assert shown["retention"]["max_age_ms"] is None
    assert services.definitions is not None
    kept = [await services.definitions.find(tenant.environment.queue(name)) for name in ("orders", "parked")]
    ages = [one.spec.retention for one in kept if one is not None]
    assert [(age.max_age_ms, age.message_age_ms) for age in ages] == [
        (None, 14 * 86_400_000),
        (14 * 86_400_000, 14 * 86_400_000),
    ]
    plain = await client.put("/api/v1/queues/orders", json={})
    assert plain.json()["definition"]["delivery"]["dead_letter_queue"] is None


@pytest.mark.parametrize(
    ("queue", "target", "word"),
    [
        ("orders", "nowhere", "there is no queue `nowhere`"),
        ("orders", "orders", "round for ever: `orders` → `orders`"),
        ("second", "first", "round for ever"),
        ("chained", "chaining", "round for ever"),
        ("orders", "typed", "queue `typed` needs `order: int`"),
        ("orders", "", "at least 1 character"),
    ],
)
async def test_a_dead_letter_queue_that_cannot_hold_is_refused(
    tenant: Tenant, services: Services, queue: str, target: str, word: str
) -> None:
    await define(services, tenant.environment, "second")
    await define(services, tenant.environment, "chained")
    await define(services, tenant.environment, "chaining", action=EnqueueTo(queue="chained"))
    fields = (MessageField(name="order", type="int"),)
    await define(services, tenant.environment, "typed", message_type=fields)
    await tenant.client.put("/api/v1/queues/first", json={"delivery": {"dead_letter_queue": "second"}})
    answer = await tenant.client.put(
        f"/api/v1/queues/{queue}", json={"delivery": {"dead_letter_queue": target}}
    )
    assert answer.status_code == 422
    assert word in answer.text


async def test_a_dead_letter_queue_is_not_forgotten_while_a_queue_names_it(tenant: Tenant) -> None:
    client = tenant.client
    await client.put("/api/v1/queues/parked", json={})
    body: dict[str, Any] = {"delivery": {"dead_letter_queue": "parked"}}
    await client.put("/api/v1/queues/orders", json=body)
    refused = await client.delete("/api/v1/queues/parked")
    assert refused.status_code == 409
    assert "used by the queue `orders` (for its dead letters)" in refused.json()["detail"]
    await client.put("/api/v1/queues/orders", json={})
    assert (await client.delete("/api/v1/queues/parked")).status_code == 204
