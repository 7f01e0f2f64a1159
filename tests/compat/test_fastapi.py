"""Weir in a FastAPI application: the client lives as long as the application, and routes get it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from support.running_api import RunningApi
from weir import App
from weir.client.core import AsyncWeir
from weir.contrib.fastapi import Lifespan, WeirDependency, weir_lifespan, weir_of, weir_ready
from weir.errors import Misconfigured
from weir.model.names import EnvironmentRef

OPERATOR_OF = ("organization", "project", "environment")


@pytest.fixture
def tasks(api_process: RunningApi, environment: EnvironmentRef) -> App:
    names = dict(zip(OPERATOR_OF, environment.names, strict=True))
    return App(api_process.url, token=api_process.token, **names)


def shop(lifespan: Lifespan | None) -> FastAPI:
    api = FastAPI(lifespan=lifespan)
    api.get("/ready")(weir_ready)

    @api.post("/orders/{number}")
    async def place(number: int, weir: WeirDependency) -> str:
        return (await weir.push("orders", {"order": number})).status

    return api


@asynccontextmanager
async def running(api: FastAPI) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=api)
    async with (
        api.router.lifespan_context(api),
        httpx2.AsyncClient(transport=transport, base_url="http://shop") as client,
    ):
        yield client


async def test_routes_get_the_client_of_the_application(tasks: App) -> None:
    api = shop(weir_lifespan(tasks))
    async with running(api) as client:
        weir = api.state.weir
        await weir._transport.send("PUT", "/api/v1/queues/orders", body={})
        assert (await client.post("/orders/7")).json() == "accepted"
        (message,) = await weir.pop("orders")
        assert message.json == {"order": 7}
        assert (await client.get("/ready")).json() == {"weir": "ready"}


async def test_the_lifespan_closes_the_client_and_the_apps_and_wraps_one_of_your_own(
    tasks: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened = []
    close = AsyncWeir.aclose

    async def closing(self: AsyncWeir) -> None:
        happened.append("closed")
        await close(self)

    @asynccontextmanager
    async def own(api: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        assert isinstance(api.state.weir, AsyncWeir)
        happened.append("begins")
        yield {"mine": 7}
        happened.append("ends")

    monkeypatch.setattr(AsyncWeir, "aclose", closing)
    api = shop(weir_lifespan(tasks, inner=own))
    async with api.router.lifespan_context(api) as state:
        assert state == {"mine": 7}
        tasks.backend()
    assert happened == ["begins", "ends", "closed", "closed"]


async def test_a_health_route_says_within_seconds_that_weir_is_away() -> None:
    api = shop(weir_lifespan(App("http://127.0.0.1:1", token="t")))
    async with running(api) as client:
        began = time.monotonic()
        answer = await client.get("/ready")
        assert answer.status_code == 503
        assert "Weir is not ready" in answer.json()["detail"]
        assert time.monotonic() - began < 6


async def test_an_application_without_the_lifespan_is_told_what_to_do() -> None:
    async with running(shop(None)) as client:
        with pytest.raises(Misconfigured, match=r"FastAPI\(lifespan=weir_lifespan\(\)\)"):
            await client.post("/orders/7")


async def test_a_test_of_the_application_replaces_the_client(tasks: App) -> None:
    class Pushed(AsyncWeir):
        async def push(self, queue: str, payload: Any, **options: Any) -> Any:
            pushed.append((queue, payload))
            return type("Result", (), {"status": "accepted"})

    pushed: list[Any] = []
    api = shop(None)
    api.dependency_overrides[weir_of] = lambda: Pushed("http://127.0.0.1:1", token="t")
    async with running(api) as client:
        assert (await client.post("/orders/7")).json() == "accepted"
    assert pushed == [("orders", {"order": 7})]
