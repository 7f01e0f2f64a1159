"""A producer sends few requests for many messages, in order, and answers for each of them."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from client.test_client import client, problem
from support.waiting import until
from weir import ApiError, Producer, ProducerFull, PushResult, Unreachable


class Server:
    """Accepts every message under the id that its payload says; holds its answers back while it is closed."""

    def __init__(self) -> None:
        self.requests = 0
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests += 1
        await self.open.wait()
        items = json.loads(request.content)["items"]
        return httpx2.Response(201, json={"items": [self.answer(item["payload"]) for item in items]})

    def answer(self, payload: object) -> dict[str, object]:
        if payload == "bad":
            return {"status": "refused", "problem": {"status": 503, "code": "queue_full"}}
        return {"status": "accepted", "id": str(payload)}


async def test_a_producer_gathers_and_keeps_order() -> None:
    server = Server()
    async with client(server) as weir, Producer(weir, max_batch=50) as producer:
        futures = [producer.submit("q", n) for n in range(200)]
        await producer.aclose()
        results = [await future for future in futures]
    assert [result.id for result in results] == [str(n) for n in range(200)]
    assert server.requests <= 8


async def test_push_waits_for_the_answer() -> None:
    async with client(Server()) as weir, Producer(weir) as producer:
        result = await producer.push("q", 7)
    assert (result.status, result.id) == ("accepted", "7")


async def test_a_refused_message_fails_its_own_push_only() -> None:
    async with client(Server()) as weir, Producer(weir) as producer:
        good, bad = producer.submit("q", 1), producer.submit("q", "bad")
        with pytest.raises(ApiError, match="queue_full"):
            await bad
        assert (await good).accepted


async def test_a_request_that_fails_fails_each_of_its_messages() -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    async with client(refuse, retry_attempts=1) as weir, Producer(weir) as producer:
        futures = [producer.submit("q", n) for n in range(3)]
        for future in futures:
            with pytest.raises(Unreachable):
                await future


async def test_a_message_that_json_cannot_say_fails_alone() -> None:
    async with client(Server()) as weir, Producer(weir) as producer:
        good, bad = producer.submit("q", 1), producer.submit("q", float("nan"))
        odd = producer.submit("q", {1j})
        with pytest.raises(ValueError, match="JSON"):
            await bad
        with pytest.raises(TypeError, match="no JSON form"):
            await odd
        assert (await good).accepted


async def test_an_end_that_is_cancelled_loses_no_answer() -> None:
    server = Server()
    server.open.clear()
    async with client(server) as weir, Producer(weir, max_batch=1) as producer:
        futures = [producer.submit("q", n) for n in range(2)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await producer.aclose()
        server.open.set()
        async with asyncio.timeout(5):
            await producer.flush()
            await producer.aclose()
        assert [future.result().id for future in futures] == ["0", "1"]


def test_a_loop_that_ends_leaves_no_future_without_an_answer() -> None:
    async def leave() -> list[asyncio.Future[PushResult]]:
        server = Server()
        server.open.clear()
        producer = await Producer(client(server), max_batch=1).__aenter__()
        futures = [producer.submit("q", n) for n in range(2)]
        await until(lambda: server.requests)
        return futures

    for future in asyncio.run(leave()):
        assert isinstance(future.exception(), Unreachable)


async def test_a_full_producer_refuses_to_be_given_more_and_lets_a_push_wait() -> None:
    server = Server()
    server.open.clear()
    async with client(server) as weir, Producer(weir, max_waiting=2) as producer:
        futures = [producer.submit("q", n) for n in range(2)]
        with pytest.raises(ProducerFull):
            producer.submit("q", 2)
        pushes = [asyncio.create_task(producer.push("q", n)) for n in (3, 4)]
        await asyncio.sleep(0)
        assert not any(push.done() for push in pushes)
        server.open.set()
        assert [(await one).id for one in (*futures, *pushes)] == ["0", "1", "3", "4"]


async def test_flush_waits_for_every_answer() -> None:
    async with client(Server()) as weir, Producer(weir) as producer:
        futures = [producer.submit("q", n) for n in range(10)]
        await producer.flush()
        assert all(future.done() for future in futures)


async def test_outside_of_its_block_a_producer_takes_nothing() -> None:
    async with client(lambda request: problem(500, "never")) as weir:
        with pytest.raises(RuntimeError, match="closed"):
            Producer(weir).submit("q", 1)


async def test_nothing_overtakes_a_push_that_waits_for_room() -> None:
    server = Server()
    server.open.clear()
    refused: list[bool] = []
    async with client(server) as weir, Producer(weir, max_waiting=1) as producer:

        def submit_at_once(_: object) -> None:
            with pytest.raises(ProducerFull):
                producer.submit("q", "overtakes")
            refused.append(True)

        producer.submit("q", 0).add_done_callback(submit_at_once)
        waiting = asyncio.create_task(producer.push("q", 1))
        await asyncio.sleep(0)
        server.open.set()
        assert (await waiting).id == "1"
    assert refused == [True]
