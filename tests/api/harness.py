"""Tenants, tokens and queues for the tests of the API."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from uuid import uuid4

import httpx2

from weir.api.edge import Edge
from weir.api.services import Services
from weir.control.principals import Role
from weir.control.tokens import NewToken
from weir.model.names import EnvironmentRef
from weir.spec.ir import QueueSpec

PUSH = {"items": [{"queue": "q", "payload": 1}]}


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """An environment, its admin token, and a client that uses it."""

    environment: EnvironmentRef
    token: str
    client: httpx2.AsyncClient


async def make_tenant(stack: AsyncExitStack, app: Edge, services: Services) -> Tenant:
    mark = uuid4().hex[:8]
    scope = EnvironmentRef(organization=f"org:{mark}", project="pro/ject *", environment="prod ✓")
    token = await make_token(services, scope, Role.ADMIN)
    return Tenant(
        environment=scope, token=token, client=await stack.enter_async_context(make_client(app, token))
    )


def make_client(app: Edge, token: str) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=True)
    return httpx2.AsyncClient(
        transport=transport, base_url="http://weir", headers={"authorization": f"Bearer {token}"}
    )


async def make_token(
    services: Services, scope: EnvironmentRef, role: Role, *, lifetime_ms: int | None = None
) -> str:
    assert services.tokens is not None
    text, _ = await services.tokens.create(
        NewToken(
            name="test",
            role=role,
            organization=scope.organization,
            project=scope.project,
            environment=scope.environment,
            lifetime_ms=lifetime_ms,
        )
    )
    return text


async def define(services: Services, scope: EnvironmentRef, name: str, **spec: object) -> str:
    assert services.definitions is not None
    document = QueueSpec(name=name, **spec)  # type: ignore[arg-type]
    await services.definitions.define(scope.queue(name), document)
    await services.broker.define(scope.queue(name), document)
    return name
