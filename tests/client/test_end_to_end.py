"""The client against a real API: what goes in comes out, byte for byte."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import quote

import httpx2
import pytest

from api.harness import Tenant, define
from weir import ApiError, AsyncWeir, Consumer, ReceivedMessage
from weir.api.services import Services
from weir.model.message import NewMessage

TEXTS = [
    b'{"amount": 1.10, "rate":1E5,  "id":12345678901234567890123, "id": 1}',
    b'  ["padded"]\n',
    '"é ✓ \\u2713"'.encode(),
    b"1.0",
]


async def test_json_comes_out_with_the_bytes_that_any_client_sent(
    base_url: str, tenant: Tenant, services: Services
) -> None:
    queue = await define(services, tenant.environment, "or/ders: ✓")
    async with httpx2.AsyncClient(
        base_url=base_url, headers={"authorization": f"Bearer {tenant.token}"}
    ) as raw:
        for text in TEXTS:
            sent = await raw.post(
                f"/api/v1/queues/{quote(queue, safe='')}/messages",
                content=text,
                headers={"content-type": "application/json"},
            )
            assert sent.status_code == 201
    async with AsyncWeir(base_url, token=tenant.token) as weir:
        messages = await weir.pop(queue, limit=len(TEXTS))
        assert [message.payload for message in messages] == TEXTS
        assert await weir.ack_many(messages) == ["acked"] * len(TEXTS)


async def test_a_payload_goes_in_as_a_value_or_as_bytes_and_comes_out_as_bytes(
    base_url: str, tenant: Tenant, services: Services
) -> None:
    queue = await define(services, tenant.environment, "orders")
    async with AsyncWeir(base_url, token=tenant.token) as weir:
        for payload in ({"order": 42}, b"\x00\xff", b'{"order" : 42}'):
            await weir.push(queue, payload)
        messages = await weir.pop(queue, limit=3)
    assert [message.payload for message in messages] == [b'{"order":42}', b"\x00\xff", b'{"order" : 42}']
    assert messages[0].json == messages[2].json == {"order": 42}


async def test_a_payload_that_nests_deep_harms_no_other(
    base_url: str, tenant: Tenant, services: Services
) -> None:
    """A sender of webhooks may nest as deep as it likes."""
    queue = await define(services, tenant.environment, "orders")
    deep = b"[" * 1_000 + b"]" * 1_000
    messages = [NewMessage(payload=deep), NewMessage(payload=b"1")]
    await services.broker.enqueue(tenant.environment.queue(queue), messages)
    async with AsyncWeir(base_url, token=tenant.token) as weir:
        assert [message.payload for message in await weir.pop(queue, limit=2)] == [deep, b"1"]


async def test_a_handler_whose_message_somebody_cancels_stops_within_a_second(
    base_url: str, tenant: Tenant, services: Services
) -> None:
    queue = await define(services, tenant.environment, "orders")
    started: asyncio.Queue[str] = asyncio.Queue()
    stopped: asyncio.Queue[str] = asyncio.Queue()

    async def handle(message: ReceivedMessage) -> None:
        started.put_nowait(message.id)
        try:
            await asyncio.sleep(30 if message.json == "long" else 0)
        except asyncio.CancelledError:
            stopped.put_nowait(message.id)
            raise

    async with AsyncWeir(base_url, token=tenant.token) as weir, asyncio.timeout(20):
        consumer = Consumer(weir, queue, handle, wait=0.2, concurrency=2)
        running = asyncio.create_task(consumer.run())
        sent = await weir.push(queue, "long")
        assert await started.get() == sent.id
        asked = time.monotonic()
        await services.broker.cancel(tenant.environment.queue(queue), [sent.id])
        assert await stopped.get() == sent.id
        assert time.monotonic() - asked < 1.0
        after = await weir.push(queue, "short")
        assert await started.get() == after.id
        consumer.stop()
        await running
    state = await services.broker.state(tenant.environment.queue(queue))
    assert (state.depth, state.delayed, state.running) == (0, 0, 0)


async def test_whoever_has_a_message_can_ask_whether_it_was_cancelled(
    base_url: str, tenant: Tenant, services: Services
) -> None:
    queue = await define(services, tenant.environment, "orders")
    async with AsyncWeir(base_url, token=tenant.token) as weir:
        for payload in ("a", "b"):
            await weir.push(queue, payload)
        first, second = await weir.pop(queue, limit=2)
        await services.broker.cancel(tenant.environment.queue(queue), [first.id])
        assert await weir.revoked([first, second]) == [True, False]
        with pytest.raises(ApiError, match="was cancelled, so its lease is revoked") as caught:
            await weir.extend(first, lease=10)
        assert caught.value.code == "lease_lost"
