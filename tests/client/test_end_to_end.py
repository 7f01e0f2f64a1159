"""The client against a real API: what goes in comes out, byte for byte."""

from __future__ import annotations

from urllib.parse import quote

import httpx2

from api.harness import Tenant, define
from weir import AsyncWeir
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
