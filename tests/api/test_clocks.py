"""An API process whose clock is wrong: the stores' time is the truth."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from urllib.parse import quote

import httpx2
import pytest

from weir.api.app import create_app
from weir.api.services import Services
from weir.model.clock import SystemClock

from .harness import define, make_tenant

HOUR_MS = 3_600_000


class OffsetClock:
    """The machine's clock, off by so much."""

    def __init__(self, offset_ms: int) -> None:
        self._offset_ms = offset_ms

    def now_ms(self) -> int:
        return SystemClock().now_ms() + self._offset_ms


@pytest.fixture(params=[HOUR_MS, -HOUR_MS], ids=["an hour ahead", "an hour behind"])
async def client(request: pytest.FixtureRequest, services: Services) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an API process whose clock is off, with a queue `work`."""
    off = replace(services, clock=OffsetClock(request.param))
    async with AsyncExitStack() as stack:
        tenant = await make_tenant(stack, create_app(off), services)
        await define(services, tenant.environment, "work")
        yield tenant.client


async def pop(client: httpx2.AsyncClient, *, wait_ms: int = 0) -> list[dict[str, object]]:
    answer = await client.post("/api/v1/pop", json={"queue": "work", "wait_ms": wait_ms})
    return list(answer.json()["messages"])


@pytest.mark.parametrize("raw", [False, True])
async def test_a_delay_is_as_long_as_it_says(client: httpx2.AsyncClient, raw: bool) -> None:
    started = time.monotonic()
    if raw:
        path = f"/api/v1/queues/{quote('work')}/messages"
        await client.post(path, content=b"1", params={"delay_ms": 600})
    else:
        await client.post("/api/v1/push", json={"items": [{"queue": "work", "payload": 1, "delay_ms": 600}]})
    assert await pop(client) == []
    assert len(await pop(client, wait_ms=10_000)) == 1
    assert 0.6 <= time.monotonic() - started < 5


async def test_an_extended_lease_ends_by_the_brokers_clock(client: httpx2.AsyncClient) -> None:
    await client.post("/api/v1/push", json={"items": [{"queue": "work", "payload": 1}]})
    (message,) = await pop(client)
    lease = {name: message[name] for name in ("queue", "id", "lease")}
    before_ms = time.time() * 1_000
    extended = await client.post("/api/v1/extend", json={**lease, "lease_ms": 60_000})
    assert before_ms - 5 <= extended.json()["lease_until_ms"] - 60_000 <= time.time() * 1_000
