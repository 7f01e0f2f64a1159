"""Clients that leave before their answer: nothing is lost, nothing is held back."""

from __future__ import annotations

import asyncio
from urllib.parse import quote, urlsplit

from weir.api.services import Services

from .harness import Tenant


async def _ask_and_leave(base_url: str, request: bytes, *, after_s: float) -> None:
    parts = urlsplit(base_url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(request)
    await writer.drain()
    await asyncio.sleep(after_s)
    writer.close()
    await writer.wait_closed()


async def test_a_consumer_that_left_its_long_poll_takes_nothing_with_it(
    base_url: str, tenant: Tenant, services: Services, queue: str
) -> None:
    head = (
        f"GET /api/v1/pop?queue={quote(queue, safe='')}&wait_ms=30000 HTTP/1.1\r\nhost: weir\r\n"
        f"authorization: Bearer {tenant.token}\r\n\r\n"
    )
    await _ask_and_leave(base_url, head.encode(), after_s=0.2)
    await tenant.client.post("/api/v1/push", json={"items": [{"queue": queue, "payload": 1}]})
    popped = await tenant.client.get("/api/v1/pop", params={"queue": queue, "wait_ms": 10_000})
    assert len(popped.json()["messages"]) == 1


async def test_a_producer_that_left_may_repeat_its_request(
    base_url: str, tenant: Tenant, services: Services, queue: str
) -> None:
    body = b'{"items":[{"queue":"%b","payload":1}]}' % queue.encode()
    head = (
        f"POST /api/v1/push HTTP/1.1\r\nhost: weir\r\nauthorization: Bearer {tenant.token}\r\n"
        f"idempotency-key: left\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    await _ask_and_leave(base_url, head.encode() + body, after_s=0)
    headers = {"idempotency-key": "left", "content-type": "application/json"}
    for _ in range(100):
        again = await tenant.client.post("/api/v1/push", content=body, headers=headers)
        if again.status_code == 201:
            break
        await asyncio.sleep(0.02)
    assert again.status_code == 201
    state = await services.broker.state(tenant.environment.queue(queue))
    assert state.depth == 1
