"""The operator: a role without an organization that reaches every tenant and Weir itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx2
import pytest

from weir.api.edge import Edge
from weir.api.services import Services, present
from weir.control.principals import Role
from weir.control.tokens import NewToken
from weir.model.names import EnvironmentRef

from .harness import Tenant, make_client


def scope(environment: EnvironmentRef) -> dict[str, str]:
    return {
        "weir-organization": quote(environment.organization),
        "weir-project": quote(environment.project),
        "weir-environment": quote(environment.environment),
    }


@pytest.fixture
async def operator(app: Edge, services: Services) -> AsyncIterator[httpx2.AsyncClient]:
    new = NewToken(name="operator", role=Role.OPERATOR, organization=None)
    text, _ = await present(services.tokens, "PostgreSQL").create(new)
    async with make_client(app, text) as client:
        yield client


async def test_an_operator_acts_in_any_organization_that_it_names(
    operator: httpx2.AsyncClient, tenant: Tenant, other: Tenant, queue: str
) -> None:
    body = {"items": [{"queue": queue, "payload": 1}]}
    assert (await operator.post("/api/v1/push", json=body)).status_code == 422
    answer = await operator.post("/api/v1/push", json=body, headers=scope(tenant.environment))
    assert answer.status_code == 201
    unknown = await operator.get(f"/api/v1/queues/{queue}", headers=scope(other.environment))
    assert unknown.status_code == 404


async def test_an_operator_sees_every_tenant(
    operator: httpx2.AsyncClient, tenant: Tenant, other: Tenant
) -> None:
    me = (await operator.get("/api/v1/me")).json()
    found = {one["organization"] for one in me["environments"]}
    assert (me["role"], me["organization"]) == ("operator", None)
    assert {tenant.environment.organization, other.environment.organization} <= found
    tokens = (await operator.get("/api/v1/tokens")).json()["items"]
    assert {tenant.environment.organization, None} <= {token["organization"] for token in tokens}


async def test_an_operator_makes_tokens_for_tenants_and_for_operators(
    app: Edge, operator: httpx2.AsyncClient, tenant: Tenant
) -> None:
    organization = tenant.environment.organization
    body = {"name": "t", "role": "admin", "organization": organization}
    made = (await operator.post("/api/v1/tokens", json=body)).json()
    assert made["organization"] == organization
    second = (await operator.post("/api/v1/tokens", json={"name": "o", "role": "operator"})).json()
    async with make_client(app, second["token"]) as client:
        assert (await client.get("/api/v1/me")).json()["role"] == "operator"
    log = (await operator.get("/api/v1/audit-log")).json()["items"]
    assert {made["id"], second["id"]} <= {entry["target"] for entry in log}


async def test_a_tenant_cannot_become_or_make_an_operator(tenant: Tenant, other: Tenant) -> None:
    for body in (
        {"name": "o", "role": "operator"},
        {"name": "o", "role": "admin", "organization": other.environment.organization},
    ):
        assert (await tenant.client.post("/api/v1/tokens", json=body)).status_code == 403
    wrong = scope(other.environment)
    assert (await tenant.client.get("/api/v1/queues", headers=wrong)).status_code == 404


async def test_an_operator_needs_an_organization_for_a_tenants_token(operator: httpx2.AsyncClient) -> None:
    answer = await operator.post("/api/v1/tokens", json={"name": "t", "role": "write"})
    assert answer.status_code == 422
    body = {"name": "t", "role": "operator", "organization": "acme"}
    assert (await operator.post("/api/v1/tokens", json=body)).status_code == 422


async def test_a_tenants_audit_log_does_not_show_what_operators_do_elsewhere(
    operator: httpx2.AsyncClient, tenant: Tenant
) -> None:
    made = (await operator.post("/api/v1/tokens", json={"name": "o", "role": "operator"})).json()
    ours = {"name": "t", "role": "read", "organization": tenant.environment.organization}
    ours["project"], ours["environment"] = tenant.environment.project, tenant.environment.environment
    visible = (await operator.post("/api/v1/tokens", json=ours)).json()
    await operator.delete(f"/api/v1/tokens/{visible['id']}")
    mine = (await tenant.client.get("/api/v1/audit-log")).json()["items"]
    assert made["id"] not in {entry["target"] for entry in mine}
    done = [entry["action"] for entry in mine if entry["target"] == visible["id"]]
    assert done == ["token.revoke", "token.create"]
