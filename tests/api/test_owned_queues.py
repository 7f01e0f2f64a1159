"""What a spec or an app has is changed there; a queue with dead letters needs a word about them."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from weir.api.services import Services
from weir.channels.consumers import ensure_consumers
from weir.control.database import Database
from weir.control.spec_plans import SpecText
from weir.deadletters.bulk_actions import BulkActionKind
from weir.model.names import EnvironmentRef
from weir.serve.hooks import open_apps, open_specs
from weir.settings import WorkerSettings

from .harness import Tenant, define

SPEC = """
app Shop {
  queue Orders { ordering: fifo }
  queue Late {}
  channel "mails" { name: "Mails"  consumer "one" { name: "One"  queue: Late } }
}
"""


@pytest.fixture
async def owned(tenant: Tenant, services: Services, database: Database) -> Tenant:
    """A tenant with a spec and an app."""
    specs = open_specs(database, services.broker, WorkerSettings())
    await specs.apply(tenant.environment, SpecText(source=SPEC), actor="test")
    text = SpecText(source="app jobs { queue Jobs {} }")
    await open_apps(database, specs).declare(tenant.environment, "jobs", text, actor="test")
    return tenant


async def kill(services: Services, environment: EnvironmentRef, queue: str, *, letters: int) -> None:
    """Count dead letters for a queue, as the mover does."""
    assert services.dead_letters is not None
    async with services.dead_letters.database.transaction() as connection:
        ref = environment.queue(queue)
        keys = await ensure_consumers(connection, [ref], now_ms=1)
        await connection.execute(
            "UPDATE weir.dlq_summary SET dead_count = %s WHERE consumer_key = %s", (letters, keys[ref])
        )


def refused(answer: httpx2.Response, *words: str) -> dict[str, Any]:
    assert answer.status_code == 409, answer.text
    problem: dict[str, Any] = answer.json()
    assert all(word in problem["detail"] for word in words), problem["detail"]
    return problem


@pytest.mark.parametrize(
    ("queue", "kind", "name"), [("Orders", "spec", "Shop"), ("Late", "spec", "Shop"), ("Jobs", "app", "jobs")]
)
async def test_a_queue_that_a_spec_or_an_app_has_is_neither_changed_nor_deleted(
    owned: Tenant, queue: str, kind: str, name: str
) -> None:
    path = f"/api/v1/queues/{queue}"
    before = (await owned.client.get(path)).json()
    for answer in (
        await owned.client.put(path, json={}),
        await owned.client.patch(path, json={"concurrency": 2}),
        await owned.client.delete(path),
    ):
        problem = refused(answer, f"belongs to the {kind} `{name}`", "change it")
        assert problem["owner"] == {"kind": kind, "name": name}
    after = (await owned.client.get(path)).json()
    assert {**after, "oldest_age_ms": 0} == {**before, "oldest_age_ms": 0}
    assert (await owned.client.post(f"{path}/pause")).status_code == 200


async def test_a_channel_that_a_spec_has_is_neither_changed_nor_removed(owned: Tenant) -> None:
    body = {"name": "Other", "consumers": []}
    refused(await owned.client.put("/api/v1/channels/mails", json=body), "belongs to the spec `Shop`")
    refused(await owned.client.delete("/api/v1/channels/mails"), "belongs to the spec `Shop`")
    assert (await owned.client.put("/api/v1/channels/others", json=body)).status_code == 200


async def test_a_queue_that_its_spec_gave_up_belongs_to_nobody(
    owned: Tenant, services: Services, database: Database
) -> None:
    specs = open_specs(database, services.broker, WorkerSettings())
    await specs.apply(owned.environment, SpecText(source="app Shop { queue Late {} }"), actor="test")
    assert (await owned.client.put("/api/v1/queues/Orders", json={})).status_code == 200
    assert (await owned.client.delete("/api/v1/queues/Orders")).status_code == 204


async def test_patch_changes_what_it_names_and_nothing_else(tenant: Tenant) -> None:
    client, path = tenant.client, "/api/v1/queues/work"
    body = {
        "ordering": "fifo",
        "priority": 7,
        "retention": {"max_depth": 9},
        "delivery": {"max_attempts": 4, "lease_ms": 5_000},
    }
    made = (await client.put(path, json=body)).json()["definition"]
    changed = await client.patch(path, json={"concurrency": 3, "delivery": {"max_attempts": 2}})
    assert changed.status_code == 200, changed.text
    wanted = {**made, "concurrency": 3, "delivery": {**made["delivery"], "max_attempts": 2}}
    assert changed.json()["definition"] == wanted
    assert (await client.patch(path, json={})).json()["definition"] == wanted
    cleared = await client.patch(path, json={"retention": {"max_depth": None}})
    assert cleared.json()["definition"]["retention"]["max_depth"] is None
    assert (await client.patch("/api/v1/queues/none", json={})).status_code == 404


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"retention": None}, "#/retention"),
        ({"concurency": 3}, "#/concurency"),
        ({"delivery": {"max_attempts": 0}}, "#/delivery/max_attempts"),
        ({"log_ms": 86_400_000}, "#"),
        ([], "#"),
    ],
)
async def test_a_patch_that_cannot_hold_is_refused_at_its_place(
    tenant: Tenant, body: object, pointer: str
) -> None:
    await tenant.client.put("/api/v1/queues/work", json={"history": "1 in 10"})
    answer = await tenant.client.patch("/api/v1/queues/work", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_a_queue_with_dead_letters_is_deleted_only_if_it_is_said_what_becomes_of_them(
    tenant: Tenant, services: Services
) -> None:
    assert services.dead_letters is not None
    client, path = tenant.client, "/api/v1/queues/work"
    await define(services, tenant.environment, "work")
    await kill(services, tenant.environment, "work", letters=3)
    problem = refused(await client.delete(path), "has 3 dead letters", "`dead_letters`")
    assert problem["dead_letters"] == 3
    assert (await client.delete(path, params={"dead_letters": "shred"})).status_code == 422
    assert (await client.get(path)).status_code == 200
    actions = services.dead_letters.bulk_actions
    assert (await client.delete(path, params={"dead_letters": "keep"})).status_code == 204
    assert (await client.get(path)).status_code == 404
    assert await actions.newest(tenant.environment) == []


async def test_purging_with_the_queue_begins_a_purge_of_all_its_dead_letters(
    tenant: Tenant, services: Services
) -> None:
    assert services.dead_letters is not None
    path = "/api/v1/queues/work"
    await define(services, tenant.environment, "work")
    await kill(services, tenant.environment, "work", letters=3)
    assert (await tenant.client.delete(path, params={"dead_letters": "purge"})).status_code == 204
    actions = services.dead_letters.bulk_actions
    (purge,) = await actions.newest(tenant.environment)
    assert (purge.kind, purge.filter.queue, purge.filter.include_unexhausted) == (
        BulkActionKind.PURGE,
        "work",
        True,
    )


async def test_a_deletion_that_is_refused_begins_no_purge(owned: Tenant, services: Services) -> None:
    assert services.dead_letters is not None
    await define(services, owned.environment, "work")
    await kill(services, owned.environment, "work", letters=3)
    body = {"delivery": {"dead_letter_queue": "work"}}
    assert (await owned.client.put("/api/v1/queues/first", json=body)).status_code == 200
    refused(await owned.client.delete("/api/v1/queues/work?dead_letters=purge"), "used by the queue")
    assert await services.dead_letters.bulk_actions.newest(owned.environment) == []
