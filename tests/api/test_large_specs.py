"""Specs as large as they may be: the process goes on answering while it reads, plans and shows them."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from weir.api.app import create_app
from weir.api.services import Services
from weir.control.current_specs import CurrentSpecs
from weir.control.database import Database
from weir.control.spec_register import SpecRegister
from weir.serve.collector import calm_collector
from weir.spec.bounds import MAX_PARTS
from weir.testing.memory import MemoryBroker

from .harness import Tenant, make_client

STALL_S = 0.1


@pytest.fixture(autouse=True)
def served() -> Iterator[None]:
    """The garbage collector as a process that serves has it."""
    before = gc.get_threshold()
    calm_collector()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def spec(queues: int) -> dict[str, str]:
    return {"source": "app Big {" + " ".join(f"queue q{n} {{}}" for n in range(queues)) + "}"}


@asynccontextmanager
async def stalls(found: list[float]) -> AsyncIterator[None]:
    """Add how long the event loop was held up at most inside the block."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            started = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - started - 0.001)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.01)
    yield
    watching.cancel()
    found.append(longest)


async def test_planning_the_largest_spec_does_not_hold_up_the_event_loop(
    tenant: Tenant, services: Services, database: Database
) -> None:
    specs = SpecRegister(database, MemoryBroker())
    found: list[float] = []
    async with make_client(create_app(replace(services, specs=specs)), tenant.token) as client:
        # The first request of all builds the routes.
        assert (await client.post("/api/v1/spec/plan", json=spec(1))).status_code == 200
        body = spec(MAX_PARTS)
        async with stalls(found):
            await asyncio.sleep(1)
        async with stalls(found):
            answer = await client.post("/api/v1/spec/plan", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["changes"]) == MAX_PARTS
    idle_s, planning_s = found
    print(f"longest stall: {idle_s * 1_000:.0f} ms idle, {planning_s * 1_000:.0f} ms while planning")
    assert planning_s < idle_s + STALL_S


async def test_a_larger_spec_is_refused(tenant: Tenant, services: Services, database: Database) -> None:
    specs = SpecRegister(database, MemoryBroker())
    async with make_client(create_app(replace(services, specs=specs)), tenant.token) as client:
        answer = await client.post("/api/v1/spec/plan", json=spec(MAX_PARTS + 1), timeout=60)
    assert (answer.status_code, answer.json()["code"]) == (422, "spec_invalid")
    assert str(MAX_PARTS) in answer.json()["detail"]


async def test_following_a_large_spec_does_not_hold_up_the_event_loop(
    tenant: Tenant, services: Services, database: Database
) -> None:
    specs, queues = SpecRegister(database, MemoryBroker()), 1_000
    async with make_client(create_app(replace(services, specs=specs)), tenant.token) as client:
        answer = await client.put("/api/v1/spec", json=spec(queues), timeout=60)
    assert answer.status_code == 200, answer.text
    registry, found = CurrentSpecs(database), list[float]()
    async with stalls(found):
        await asyncio.sleep(1)
    async with stalls(found):
        assert await registry.refresh()
    assert found[1] < found[0] + STALL_S
