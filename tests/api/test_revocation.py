"""What is open under a token ends with it: long polls, waits for an outcome, and streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import httpx2
import pytest

from support.waiting import until
from weir.api.app import create_app
from weir.api.services import Services
from weir.broker.broker import Broker
from weir.control.database import Database
from weir.control.principals import Principal, Role
from weir.control.token_texts import parse
from weir.model.message import NewMessage
from weir.serve.server import bind, listening
from weir.spec.ir import DeliveryPolicy

from .conftest import services_over
from .harness import Tenant, define, make_tenant, make_token

OPERATOR = Principal(token_id="test", role=Role.OPERATOR, organization=None)
LONG_MS = 60_000
FRESH_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """An API that remembers tokens for `FRESH_S`, and a second token of its tenant."""

    tenant: Tenant
    services: Services
    client: httpx2.AsyncClient
    token_id: str

    async def revoke(self) -> None:
        """Revoke the second token as another process would do it."""
        assert self.services.tokens is not None
        await self.services.tokens.revoke(self.token_id, by=OPERATOR)

    async def put(self) -> str:
        queue = self.tenant.environment.queue("q")
        (answer,) = await self.services.broker.enqueue(queue, [NewMessage(payload=b"1")])
        return answer.message_id


@pytest.fixture
async def place(database: Database, broker: Broker) -> AsyncIterator[Place]:
    services = services_over(database, broker, fresh_s=FRESH_S)
    app = create_app(services)
    async with (
        AsyncExitStack() as stack,
        listening(app, bind("127.0.0.1", 0), stopping=services.stopping.set, grace_s=5) as url,
    ):
        tenant = await make_tenant(stack, app, services)
        await define(services, tenant.environment, "q", delivery=DeliveryPolicy(max_attempts=1))
        text = await make_token(services, tenant.environment, Role.WRITE)
        parts = parse(text)
        assert parts is not None
        headers = {"authorization": f"Bearer {text}"}
        client = await stack.enter_async_context(
            httpx2.AsyncClient(base_url=url, headers=headers, timeout=LONG_MS / 1_000)
        )
        yield Place(tenant=tenant, services=services, client=client, token_id=parts.id)


async def poll(place: Place) -> int:
    return (await place.client.get(f"/api/v1/pop?queue=q&wait_ms={LONG_MS}")).status_code


async def wait_for_outcome(place: Place) -> int:
    path = f"/api/v1/messages/{await place.put()}/outcome?wait_ms={LONG_MS}"
    return (await place.client.get(path)).status_code


async def watch(place: Place, path: str) -> int:
    """The status of a second request, when the stream of the first one has ended."""
    async with place.client.stream("GET", path) as response:
        assert response.status_code == 200
        async for _ in response.aiter_bytes():
            pass
    return (await place.client.get(path)).status_code


async def watch_queues(place: Place) -> int:
    return await watch(place, "/api/v1/live")


async def watch_outcome(place: Place) -> int:
    return await watch(place, f"/api/v1/messages/{await place.put()}/outcome/stream")


OPEN = (poll, wait_for_outcome, watch_queues, watch_outcome)


@pytest.mark.parametrize("open_request", OPEN)
async def test_a_request_that_is_open_ends_soon_after_its_token(
    place: Place, open_request: Callable[[Place], Awaitable[int]]
) -> None:
    asking = asyncio.ensure_future(open_request(place))
    await until(lambda: place.services.open_requests.count == 1)
    done, _ = await asyncio.wait({asking}, timeout=FRESH_S)
    assert not done
    await place.revoke()
    # Far longer than it takes, and far shorter than the wait that was asked for.
    async with asyncio.timeout(30):
        assert await asking == 401
    await until(lambda: place.services.open_requests.count == 0)


async def test_a_message_is_not_handed_to_a_poll_whose_token_was_revoked_here(place: Place) -> None:
    asking = asyncio.ensure_future(poll(place))
    await until(lambda: place.services.open_requests.count == 1)
    await place.revoke()
    place.services.authenticator.forget(place.token_id)
    message_id = await place.put()
    assert await asking == 401
    answer = await place.tenant.client.post("/api/v1/pop", json={"queue": "q", "wait_ms": 10_000})
    (message,) = answer.json()["messages"]
    # It was not tried, so it did not die of its only attempt.
    assert message["id"] == message_id


async def test_an_open_poll_of_another_token_goes_on(place: Place) -> None:
    ours = asyncio.ensure_future(poll(place))
    theirs = asyncio.ensure_future(
        place.tenant.client.post("/api/v1/pop", json={"queue": "q", "wait_ms": LONG_MS})
    )
    await until(lambda: place.services.open_requests.count == 2)
    await place.revoke()
    assert await ours == 401
    await place.put()
    assert len((await theirs).json()["messages"]) == 1
