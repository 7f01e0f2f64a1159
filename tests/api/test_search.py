"""Search over an environment: queues by a part of the name, messages by id and by key."""

from __future__ import annotations

from typing import Any

import pytest

from weir.api.routes import search
from weir.api.services import Services
from weir.spec.ir import Ordering

from .harness import Tenant, define
from .test_message_routes import pop, push


async def found(tenant: Tenant, text: str) -> dict[str, Any]:
    answer = await tenant.client.get("/api/v1/search", params={"q": text})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_queues_are_found_by_a_part_of_their_name_in_any_case(
    tenant: Tenant, other: Tenant, services: Services
) -> None:
    for name in ("Orders", "reorders", "payments"):
        await define(services, tenant.environment, name)
    assert (await found(tenant, "ORDER"))["queues"] == ["Orders", "reorders"]
    assert (await found(other, "ORDER"))["queues"] == []


async def test_a_message_is_found_by_its_id_wherever_it_is(
    tenant: Tenant, other: Tenant, services: Services
) -> None:
    await define(services, tenant.environment, "orders")
    message_id = await push(tenant.client, "orders", key="k 1")
    wanted = [{"message_id": message_id, "queue": "orders", "state": "ready", "key": "k 1"}]
    assert (await found(tenant, message_id.upper()))["messages"] == wanted
    assert (await found(other, message_id))["messages"] == []


async def test_messages_are_found_by_their_whole_key_in_every_state(
    tenant: Tenant, services: Services
) -> None:
    await define(services, tenant.environment, "orders", ordering=Ordering.PER_KEY)
    await define(services, tenant.environment, "mails")
    first = await push(tenant.client, "orders", key="customer 7")
    second = await push(tenant.client, "orders", key="customer 7")
    third = await push(tenant.client, "mails", key="customer 7", delay_ms=600_000)
    await push(tenant.client, "mails", key="customer 77")
    await pop(tenant.client, "orders")
    answer = await found(tenant, "customer 7")
    states = {(one["message_id"], one["state"]) for one in answer["messages"]}
    assert states == {(first, "leased"), (second, "blocked"), (third, "scheduled")}
    assert answer["complete"]


async def test_a_search_that_runs_out_of_time_says_that_it_is_not_complete(
    tenant: Tenant, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    await define(services, tenant.environment, "orders")
    await push(tenant.client, "orders", key="k")
    monkeypatch.setattr(search, "KEY_SEARCH_S", 0.0)
    assert (await found(tenant, "k"))["complete"] is False
