"""The stream of a message's outcome: its state and progress as they change, and its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from weir.api.services import Services
from weir.client.core import AsyncWeir
from weir.client.errors import ApiError, Unreachable
from weir.client.sync import Weir
from weir.model.ids import MessageId, new_id
from weir.model.message import Delivery, NewMessage

from .harness import Tenant

WITHIN_S = 20.0


async def events(response: httpx2.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])


def client_of(base_url: str, tenant: Tenant) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=base_url, headers={"authorization": f"Bearer {tenant.token}"})


def path_of(message_id: str) -> str:
    return f"/api/v1/messages/{message_id}/outcome/stream"


async def put(services: Services, tenant: Tenant, queue: str) -> MessageId:
    (answer,) = await services.broker.enqueue(tenant.environment.queue(queue), [NewMessage(payload=b"1")])
    return answer.message_id


async def take(services: Services, tenant: Tenant, queue: str) -> Delivery:
    (delivery,) = await services.broker.dequeue(tenant.environment.queue(queue), consumer="c")
    return delivery


async def test_a_stream_tells_each_change_and_closes_at_the_end(
    base_url: str, tenant: Tenant, services: Services, queue: str
) -> None:
    message_id = await put(services, tenant, queue)
    async with (
        client_of(base_url, tenant) as client,
        client.stream("GET", path_of(message_id)) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = events(response)
        name, first = await anext(stream)
        assert (name, first["message_id"], first["status"]) == ("change", message_id, "waiting")
        delivery = await take(services, tenant, queue)
        assert (await anext(stream))[1]["status"] == "running"
        await services.broker.keep_progress(delivery.lease, b'{"done": 1}')
        name, told = await anext(stream)
        assert (name, told["status"], told["progress"]) == ("change", "running", {"done": 1})
        await services.broker.ack([delivery.lease], results=[b'"a.png"'])
        rest = [one async for one in stream]
        assert [(name, one["status"], one["result"]) for name, one in rest] == [("end", "done", "a.png")]


async def test_a_stream_of_a_message_that_ended_or_never_was_is_its_end_alone(
    base_url: str, tenant: Tenant, other: Tenant, services: Services, queue: str
) -> None:
    message_id = await put(services, tenant, queue)
    await services.broker.cancel(tenant.environment.queue(queue), [message_id])
    async with client_of(base_url, tenant) as client, client_of(base_url, other) as stranger:
        for who, asked, status in (
            (client, message_id, "cancelled"),
            (client, new_id(), "gone"),
            (stranger, message_id, "gone"),
        ):
            async with who.stream("GET", path_of(asked)) as response:
                assert [(name, one["status"]) async for name, one in events(response)] == [("end", status)]
        refused = await client.get(path_of("nonsense"))
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_input")
        del stranger.headers["authorization"]
        assert (await stranger.get(path_of(message_id))).status_code == 401


async def test_many_streams_of_a_message_ask_the_broker_once_a_look(
    base_url: str, tenant: Tenant, services: Services, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_id = await put(services, tenant, queue)
    looks = 0
    kept = services.broker.kept

    async def counted(*args: Any) -> Any:
        nonlocal looks
        looks += 1
        return await kept(*args)

    monkeypatch.setattr(services.broker, "kept", counted)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(client_of(base_url, tenant))
        streams = []
        for _ in range(20):
            response = await stack.enter_async_context(client.stream("GET", path_of(message_id)))
            streams.append(events(response))
            assert (await anext(streams[-1]))[1]["status"] == "waiting"
        before = looks
        delivery = await take(services, tenant, queue)
        for stream in streams:
            assert (await anext(stream))[1]["status"] == "running"
        assert looks - before < 20
        await services.broker.ack([delivery.lease], results=[b"1"])
        for stream in streams:
            assert [name async for name, _ in stream] == ["end"]
    async with asyncio.timeout(WITHIN_S):
        while any(task.get_name() == "live-outcome" for task in asyncio.all_tasks()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_stream_says_that_it_is_alive_and_ends_with_its_process(
    base_url: str, tenant: Tenant, services: Services, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.api.live_outcomes.QUIET_S", 0.05)
    message_id = await put(services, tenant, queue)
    async with (
        client_of(base_url, tenant) as client,
        client.stream("GET", path_of(message_id)) as response,
    ):
        lines = response.aiter_lines()
        async with asyncio.timeout(WITHIN_S):
            while await anext(lines) != ": quiet":
                pass
            services.stopping.set()
            assert [line async for line in lines if line.startswith("event")] == []


async def test_streams_of_outcomes_are_counted_as_streams(
    base_url: str, tenant: Tenant, services: Services, queue: str
) -> None:
    message_id = await put(services, tenant, queue)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(client_of(base_url, tenant))
        client.timeout = httpx2.Timeout(WITHIN_S)
        answers = []
        for _ in range(services.limits.max_streams_per_token + 1):
            one = await stack.enter_async_context(
                httpx2.AsyncClient(base_url=base_url, headers=client.headers)
            )
            answers.append(await stack.enter_async_context(one.stream("GET", path_of(message_id))))
        assert {one.status_code for one in answers[:-1]} == {200}
        assert answers[-1].status_code == 429
        assert (await client.get(f"/api/v1/messages/{message_id}/outcome")).status_code == 200


async def test_the_client_follows_a_message_with_and_without_a_loop(
    base_url: str, tenant: Tenant, services: Services, queue: str
) -> None:
    message_id = await put(services, tenant, queue)

    def follow() -> list[tuple[str, Any]]:
        with Weir(base_url, token=tenant.token) as weir:
            return [(one.status, one.result) for one in weir.watch(message_id, timeout=WITHIN_S)]

    blocking = asyncio.create_task(asyncio.to_thread(follow))
    seen: list[str] = []
    async with AsyncWeir(base_url, token=tenant.token) as weir:
        async for outcome in weir.watch(message_id, timeout=WITHIN_S):
            seen.append(outcome.status)
            if outcome.status == "waiting":
                delivery = await take(services, tenant, queue)
            if outcome.status == "running":
                await services.broker.ack([delivery.lease], results=[b'{"a": 1}'])
    assert seen == ["waiting", "running", "done"]
    assert (await blocking)[-1] == ("done", {"a": 1})


async def test_a_client_stops_after_its_timeout_and_says_what_is_wrong(
    base_url: str, tenant: Tenant, services: Services, queue: str
) -> None:
    message_id = await put(services, tenant, queue)
    async with AsyncWeir(base_url, token=tenant.token) as weir:
        found = [one async for one in weir.watch(message_id, timeout=3)]
        assert [(one.status, one.ended) for one in found] == [("waiting", False)]
        with pytest.raises(ApiError, match="not a message id"):
            await anext(weir.watch("nonsense", timeout=5))
    async with AsyncWeir("http://127.0.0.1:1", token="t", retry_attempts=2, retry_delay=0.01) as nobody:
        with pytest.raises(Unreachable):
            await anext(nobody.watch(message_id, timeout=5))


async def test_a_client_goes_on_where_a_stream_broke(
    base_url: str, tenant: Tenant, services: Services, queue: str
) -> None:
    """The first server closes its streams at once, as one that stops does."""

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    message_id = await put(services, tenant, queue)
    async with (
        server,
        AsyncWeir([f"http://127.0.0.1:{port}", base_url], token=tenant.token, retry_delay=0.01) as weir,
    ):
        stream = weir.watch(message_id, timeout=WITHIN_S)
        assert (await anext(stream)).status == "waiting"
        await stream.aclose()
