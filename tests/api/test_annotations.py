"""Annotations over HTTP: made, listed, deleted, on record, and never seen by another tenant."""

from __future__ import annotations

import pytest

from weir.api.services import Services
from weir.control import annotations as module
from weir.control.principals import Role

from .harness import Tenant, make_client, make_token

PATH = "/api/v1/annotations"


async def test_an_annotation_is_made_listed_and_deleted_and_both_are_on_record(tenant: Tenant) -> None:
    made = (await tenant.client.post(PATH, json={"text": " v42 out ", "at_ms": 1_790_000_000_000})).json()
    assert (made["text"], made["at_ms"]) == ("v42 out", 1_790_000_000_000)
    assert (await tenant.client.get(PATH)).json()["items"] == [made]
    assert (await tenant.client.delete(f"{PATH}/{made['id']}")).status_code == 204
    assert (await tenant.client.delete(f"{PATH}/{made['id']}")).status_code == 404
    assert (await tenant.client.get(PATH)).json()["items"] == []
    log = (await tenant.client.get("/api/v1/audit-log")).json()["items"]
    assert [one["action"] for one in log] == ["annotation.delete", "annotation.create"]
    assert log[1]["details"] == {"text": "v42 out"}


async def test_an_annotation_without_a_time_is_of_now(tenant: Tenant) -> None:
    made = (await tenant.client.post(PATH, json={"text": "now"})).json()
    assert made["at_ms"] == made["created_at_ms"] > 1_700_000_000_000


@pytest.mark.parametrize("body", [{"text": ""}, {"text": "   "}, {"text": "two\nlines"}, {"text": "x" * 201}])
async def test_a_text_that_does_not_fit_on_a_chart_is_refused(tenant: Tenant, body: dict[str, str]) -> None:
    assert (await tenant.client.post(PATH, json=body)).status_code == 422


async def test_only_the_newest_are_kept(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    for number in range(5):
        await tenant.client.post(PATH, json={"text": f"v{number}", "at_ms": 1_000 * number})
    found = (await tenant.client.get(PATH)).json()["items"]
    assert [one["text"] for one in found] == ["v4", "v3", "v2"]


async def test_another_tenant_and_a_reader_may_not(tenant: Tenant, other: Tenant, services: Services) -> None:
    made = (await tenant.client.post(PATH, json={"text": "v42 out"})).json()
    assert (await other.client.get(PATH)).json()["items"] == []
    assert (await other.client.delete(f"{PATH}/{made['id']}")).status_code == 404
    token = await make_token(services, tenant.environment, Role.READ)
    async with make_client(tenant.client._transport.app, token) as reader:  # type: ignore[attr-defined]
        assert (await reader.post(PATH, json={"text": "no"})).status_code == 403
        assert (await reader.get(PATH)).json()["items"][0]["text"] == "v42 out"
