"""A full queue and a broker that is away, through whole processes: one queues every push, one is calm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.harness import Tenant, make_client, make_tenant
from support.tcp_proxy import TcpProxy
from support.waiting import until
from weir.api.app import create_app
from weir.control.spec_plans import SpecText
from weir.serve.build import Process, open_process
from weir.settings import EmbeddedSettings, LoadSettings, Settings, StoreUrls

SPEC = """
app Small {
  queue tiny { retention { max_depth: 5 } }
  queue other { retention { max_depth: 5 } }
  webhook In { queue: tiny, idempotency_header: "X-Id" }
  channel news { name: "News", consumer one { name: "One", queue: tiny } }
}
"""


@dataclass
class Two:
    """One environment, and a client of each process."""

    tenant: Tenant
    pressed: httpx2.AsyncClient
    calm: httpx2.AsyncClient
    proxy: TcpProxy

    async def push(self, client: httpx2.AsyncClient, *payloads: Any, **fields: Any) -> httpx2.Response:
        items = [{"queue": "tiny", "payload": payload, **fields} for payload in payloads]
        return await client.post("/api/v1/push", json={"items": items})

    async def pop(self, limit: int = 1) -> list[Any]:
        answer = await self.calm.post("/api/v1/pop", json={"queue": "tiny", "limit": limit})
        messages = answer.json()["messages"]
        leases = [{name: one[name] for name in ("queue", "id", "lease")} for one in messages]
        if leases:
            await self.calm.post("/api/v1/ack/batch", json={"acknowledgments": leases})
        return [message["payload"] for message in messages]

    async def drain(self, count: int) -> list[Any]:
        found: list[Any] = []
        async with asyncio.timeout(30):
            while len(found) < count:
                found += await self.pop(5)
                await asyncio.sleep(0.02)
        return found

    async def until_direct(self) -> None:
        """Until the calm process may put messages in itself."""
        body = {"items": [{"queue": "other", "payload": 0}]}

        async def direct() -> bool:
            return (await self.calm.post("/api/v1/push", json=body)).status_code == 201

        await until(direct)

    async def operation(self, answer: httpx2.Response) -> dict[str, Any]:
        """The operation behind a 202, once it is done."""
        path = answer.headers["location"]

        async def done() -> bool:
            return bool((await self.calm.get(path)).json()["status"] == "completed")

        await until(done)
        return dict((await self.calm.get(path)).json())


def settings(tmp_path: Path, redis_url: str, **load: Any) -> Settings:
    return Settings(
        redis_url=redis_url, embedded=EmbeddedSettings(data_dir=tmp_path), load=LoadSettings(**load)
    )


@pytest.fixture
async def two(redis_url: str, database_url: str, warehouse_url: str, tmp_path: Path) -> AsyncIterator[Two]:
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(TcpProxy.to(redis_url))
        processes: list[Process] = []
        for load in ({"push_utilization": 0.01}, {}):
            urls = StoreUrls(redis=proxy.url, postgres=database_url, clickhouse=warehouse_url)
            making = open_process(settings(tmp_path, proxy.url, **load), urls, accept_loss=True)
            process = await stack.enter_async_context(making)
            await stack.enter_async_context(process.supervisor.running())
            processes.append(process)
        calm = processes[1].services
        tenant = await make_tenant(stack, create_app(calm), calm)
        pressed = await stack.enter_async_context(
            make_client(create_app(processes[0].services), tenant.token)
        )
        assert calm.specs is not None
        await calm.specs.apply(tenant.environment, SpecText(source=SPEC, file="small.weir"), actor="test")
        for process in processes:
            assert process.services.receiver is not None
            await process.services.receiver._specs.refresh()
        world = Two(tenant=tenant, pressed=pressed, calm=tenant.client, proxy=proxy)
        await world.until_direct()
        yield world
        proxy.heal()


def problem(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "")


@pytest.mark.slow
async def test_a_full_queue_is_503_on_every_way_in_and_keeps_its_order(two: Two) -> None:
    full = (503, "queue_full")
    assert (await two.push(two.calm, 0, 1, 2, 3, 4)).status_code == 201
    channel = (await two.calm.post("/api/v1/channels/news/tokens")).json()["token"]
    hook = next(iter((await two.calm.get("/api/v1/webhooks")).json()["items"]))["path"]
    for client in (two.pressed, two.calm):
        for n in range(20):
            assert problem(await two.push(client, "x")) == full
            assert problem(await two.push(client, "x", key=f"k{n}")) == full
        assert problem(await client.post("/api/v1/queues/tiny/messages", content=b"x")) == full
        for headers in ({}, {"x-id": "one"}):
            hooked = await client.post(hook, json={"n": 1}, headers=headers)
            assert problem(hooked) == full
        published = await client.post(
            "/channel/news/publish", content=b"x", headers={"X-Broker-Channel-Token": channel}
        )
        assert published.status_code == 503
        assert "full" in published.json()["consumers"][0]["error"]
        mixed = [{"queue": "tiny", "payload": "x"}, {"queue": "other", "payload": 1}]
        items = (await client.post("/api/v1/push", json={"items": mixed})).json()["items"]
        assert items[0]["problem"]["code"] == "queue_full"
        assert items[1]["status"] in ("accepted", "queued")
    assert await two.pop() == [0]
    queued = await two.push(two.pressed, 5, "x", "y")
    assert queued.status_code == 202
    assert [one["status"] for one in queued.json()["items"]] == ["queued", "refused", "refused"]
    for _ in range(20):
        assert problem(await two.push(two.calm, "x")) == full
    stats = (await two.calm.get("/api/v1/operations/stats")).json()
    waiting = sum(one["count"] for one in stats["stats"] if one["status"] in ("pending", "processing"))
    assert waiting <= 1
    assert await two.drain(5) == [1, 2, 3, 4, 5]


@pytest.mark.slow
async def test_a_queued_push_with_a_key_is_named_by_its_operation_alone(two: Two) -> None:
    two.proxy.refuse()
    two.proxy.cut()
    first = await two.push(two.calm, "a", idempotency_key="once")
    again = await two.push(two.pressed, "a", idempotency_key="once")
    other = await two.push(two.calm, "b")
    assert [one.status_code for one in (first, again, other)] == [202] * 3
    assert ["id" in one.json()["items"][0] for one in (first, again, other)] == [False, False, True]
    two.proxy.heal()
    rows = [(await two.operation(one))["result"]["messages"][0] for one in (first, again)]
    assert {row["id"] for row in rows} == {rows[0]["id"]}
    assert sorted(row["status"] for row in rows) == ["accepted", "duplicate"]
    assert sorted(await two.drain(2)) == ["a", "b"]
    timeline = (await two.calm.get(f"/api/v1/messages/{rows[0]['id']}/timeline")).json()
    assert "enqueued" in [moment["what"] for moment in timeline["items"]]
