"""The priority of a queue is that of its messages, whichever way they come."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from psycopg.types.json import Jsonb

from weir.api.services import Services
from weir.control.queue_definitions import QueueDefinitions, queue_names

from .harness import Tenant, define


async def popped(client: httpx2.AsyncClient, queue: str) -> list[tuple[Any, int]]:
    answer = await client.post("/api/v1/pop", json={"queue": queue, "limit": 10})
    return [(message["payload"], message["priority"]) for message in answer.json()["messages"]]


@pytest.mark.parametrize("name", ["priority", "default_priority"])
async def test_messages_without_a_priority_have_the_queues(tenant: Tenant, name: str) -> None:
    client = tenant.client
    defined = await client.put("/api/v1/queues/urgent", json={name: 7})
    assert defined.json()["definition"]["priority"] == 7
    items = [{"queue": "urgent", "payload": n, "priority": n} for n in (4, 8)]
    plain = [{"queue": "urgent", "payload": "plain"}, {"queue": "urgent", "payload": "keyed", "key": "k"}]
    await client.post("/api/v1/push", json={"items": [*items, *plain]})
    raw = {"content-type": "application/json"}
    await client.post("/api/v1/queues/urgent/messages", content=b'"raw"', headers=raw)
    found = await popped(client, "urgent")
    assert found == [(8, 8), ("plain", 7), ("keyed", 7), ("raw", 7), (4, 4)]


async def test_a_definition_that_was_stored_under_the_former_name_keeps_its_priority(
    tenant: Tenant, services: Services
) -> None:
    definitions = services.definitions
    assert isinstance(definitions, QueueDefinitions)
    queue = tenant.environment.queue(await define(services, tenant.environment, "old", priority=8))
    async with definitions._database.connection() as connection:
        await connection.execute(
            "UPDATE weir.queue_definitions SET spec = spec - 'priority' || %(former)s "
            "WHERE queue = %(queue)s AND organization = %(organization)s",
            {"former": Jsonb({"default_priority": 6}), **queue_names(queue)},
        )
    found = await definitions.find(queue)
    assert found is not None
    assert found.spec.priority == 6
