"""A consumer settles by what its handler does, keeps leases alive, and lets go of what it has lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from client.test_client import client, document, problem
from weir import ApiError, Consumer, ReceivedMessage, Reject, Retry
from weir.client.cancellations import CancelledMessages
from weir.model.limits import MAX_ERROR_BYTES

Handler = Callable[[ReceivedMessage], Awaitable[None]]


class Server:
    """Hands out each message once and writes down what becomes of it."""

    def __init__(self, *texts: str) -> None:
        self.waiting = [document(text) for text in texts]
        self.settled: list[tuple[str, dict[str, Any]]] = []
        self.extended, self.extended_twice = 0, asyncio.Event()
        self.lost: set[str] = set()
        """Messages whose leases are gone."""
        self.changed = asyncio.Event()

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        verb = request.url.path.rsplit("/", 1)[1]
        if verb == "pop":
            return await self._pop(body["limit"])
        if body["id"] in self.lost:
            return problem(409, "lease_lost")
        if verb == "extend":
            self.extended += 1
            if self.extended == 2:
                self.extended_twice.set()
            return httpx2.Response(200, json={"lease_until_ms": 3})
        self.settled.append((verb, body))
        self.changed.set()
        return httpx2.Response(200, json={"status": f"{verb}ed"})

    async def _pop(self, limit: int) -> httpx2.Response:
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        await asyncio.sleep(0 if taken else 0.005)
        return httpx2.Response(200, json={"messages": taken})

    def verbs(self) -> dict[str, str]:
        return {body["id"]: verb for verb, body in self.settled}

    def body(self, message_id: str) -> dict[str, Any]:
        (found,) = [body for _, body in self.settled if body["id"] == message_id]
        return found

    async def until_settled(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.settled) < count:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def consuming(server: Server, handle: Handler, **options: Any) -> AsyncIterator[Consumer]:
    async with client(server) as weir:
        consumer = Consumer(weir, "q", handle, **{"wait": 0, **options})
        running = asyncio.create_task(consumer.run())
        yield consumer
        consumer.stop()
        async with asyncio.timeout(5):
            await running


async def test_what_the_handler_does_decides() -> None:
    async def handle(message: ReceivedMessage) -> None:
        match message.json:
            case "bad":
                raise ValueError("no")
            case "busy":
                raise Retry("not now", delay=1.5)
            case "again":
                raise Retry
            case "hopeless":
                raise Reject("never")
            case "exits":
                raise SystemExit(1)

    server = Server("good", "bad", "busy", "again", "hopeless", "exits")
    async with consuming(server, handle):
        await server.until_settled(6)
    assert server.verbs().pop("good") == "ack"
    assert set(server.verbs().values()) == {"ack", "nack"}
    bad, busy, hopeless = server.body("bad"), server.body("busy"), server.body("hopeless")
    assert bad["error"].startswith("ValueError: no (in handle, line ")
    assert not bad["dead_letter"]
    assert "delay_ms" not in bad
    assert (busy["delay_ms"], busy["error"].partition(" (")[0]) == (1_500, "weir.Retry: not now")
    assert "delay_ms" not in server.body("again")
    assert (hopeless["dead_letter"], hopeless["error"].partition(" (")[0]) == (True, "weir.Reject: never")


async def test_the_server_is_told_how_long_handlers_ran() -> None:
    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(0.02)
        if message.json == "bad":
            raise ValueError("no")

    server = Server("good", "bad")
    async with consuming(server, handle):
        await server.until_settled(2)
    assert all(20 <= server.body(one)["handler_ms"] < 5_000 for one in ("good", "bad"))


async def test_a_server_that_does_not_know_the_time_of_handlers_is_told_it_once() -> None:
    async def handle(message: ReceivedMessage) -> None:
        if message.json == "bad":
            raise ValueError("no")

    server, refused = Server("good", "bad", "good"), []

    async def older(request: httpx2.Request) -> httpx2.Response:
        if b"handler_ms" in request.content:
            refused.append(request)
            return problem(422, "invalid_input")
        return await server(request)

    async with client(older) as weir:
        consumer = Consumer(weir, "q", handle, wait=0, concurrency=1)
        running = asyncio.create_task(consumer.run())
        await server.until_settled(3)
        consumer.stop()
        await running
    assert [verb for verb, _ in server.settled] == ["ack", "nack", "ack"]
    assert len(refused) == 1


async def test_an_error_of_any_length_and_alphabet_is_told() -> None:
    async def handle(message: ReceivedMessage) -> None:
        raise ValueError("\udc80 " + "✓" * MAX_ERROR_BYTES)

    server = Server("m")
    async with consuming(server, handle):
        await server.until_settled(1)
    error = server.body("m")["error"]
    assert error.startswith("ValueError: ? ✓")
    assert MAX_ERROR_BYTES - 3 < len(error.encode()) <= MAX_ERROR_BYTES


async def test_leases_are_renewed_while_a_handler_runs() -> None:
    server = Server("m")

    async def handle(message: ReceivedMessage) -> None:
        async with asyncio.timeout(5):
            await server.extended_twice.wait()

    async with consuming(server, handle, lease=0.06):
        await server.until_settled(1)
    assert server.verbs() == {"m": "ack"}


async def test_a_lost_lease_stops_the_handler_and_settles_nothing() -> None:
    server = Server("lost", "next")
    server.lost.add("lost")
    stopped = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.id == "lost":
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

    async with consuming(server, handle, lease=0.06, concurrency=1):
        async with asyncio.timeout(5):
            await stopped.wait()
        await server.until_settled(1)
    assert server.verbs() == {"next": "ack"}


async def test_a_server_that_does_not_know_the_question_is_asked_once() -> None:
    server, asked = Server("m"), []

    async def older(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/api/v1/revoked":
            asked.append(request)
            return problem(404, "not_found")
        return await server(request)

    async with client(older) as weir:
        (message,) = await weir.pop("q")
        cancelled = CancelledMessages(weir, look_every_s=0.001)
        cancelled.watch(message, stop=lambda: None)
        async with asyncio.timeout(10):
            await cancelled.run()
    assert len(asked) == 1


async def test_a_consumer_that_is_cancelled_gives_its_messages_back_at_once() -> None:
    server, started = Server("m"), asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        started.set()
        await asyncio.Event().wait()

    async with client(server) as weir:
        running = asyncio.create_task(Consumer(weir, "q", handle, wait=0).run())
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    body = server.body("m")
    assert (server.verbs(), body["delay_ms"], body["error"]) == ({"m": "nack"}, 0, "the consumer stopped")


async def test_a_consumer_that_stops_gives_back_what_the_last_answer_brought() -> None:
    server, asked, go = Server("m"), asyncio.Event(), asyncio.Event()

    async def slow(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/pop"):
            asked.set()
            await go.wait()
        return await server(request)

    async with client(slow) as weir:
        consumer = Consumer(weir, "q", handle_nothing, wait=0)
        running = asyncio.create_task(consumer.run())
        await asked.wait()
        consumer.stop()
        go.set()
        await running
    body = server.body("m")
    assert (server.verbs(), body["delay_ms"], body["uncounted"]) == ({"m": "nack"}, 0, True)


async def test_a_consumer_that_is_cancelled_before_a_handler_began_gives_its_message_back_untried() -> None:
    server = Server("m")
    async with client(server) as weir:
        consumer = Consumer(weir, "q", handle_nothing)
        (message,) = await weir.pop("q")
        consumer._running[asyncio.create_task(consumer._work(message))] = message
        await consumer._end(asyncio.create_task(asyncio.sleep(0)))
    assert server.body("m")["uncounted"] is True


ODD = {
    "StopIteration": StopIteration("at the end"),
    "GeneratorExit": GeneratorExit("closed"),
    "ancelled": asyncio.CancelledError("by itself"),
    "KeyboardInterrupt": KeyboardInterrupt("by itself"),
    "BaseExceptionGroup": BaseExceptionGroup("many", [ValueError("one")]),
}


@pytest.mark.parametrize("said", ODD)
async def test_whatever_a_handler_raises_its_message_is_settled_with_that_reason(said: str) -> None:
    async def handle(message: ReceivedMessage) -> None:
        raise ODD[said]

    server = Server("m")
    async with consuming(server, handle):
        await server.until_settled(1)
    assert server.verbs() == {"m": "nack"}
    assert said in server.body("m")["error"] or said == "BaseExceptionGroup"
    assert "delay_ms" not in server.body("m"), "the back-off of the queue decides"


async def test_a_settlement_that_the_server_refuses_is_told_with_that_reason() -> None:
    server = Server("m")

    async def strict(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/nack") and json.loads(request.content).get("delay_ms"):
            return problem(422, "invalid_input")
        return await server(request)

    async def handle(message: ReceivedMessage) -> None:
        raise Retry("much later", delay=10 * 365 * 86_400)

    async with client(strict) as weir:
        consumer = Consumer(weir, "q", handle, wait=0)
        running = asyncio.create_task(consumer.run())
        await server.until_settled(1)
        consumer.stop()
        await running
    error = server.body("m")["error"]
    assert "cannot be settled" in error
    assert "much later" in error


async def test_a_consumer_that_is_stopped_lets_its_handlers_finish() -> None:
    server, started, go = Server("m"), asyncio.Event(), asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        started.set()
        await go.wait()

    async with consuming(server, handle) as consumer:
        await started.wait()
        consumer.stop()
        go.set()
    assert server.verbs() == {"m": "ack"}


PAGE = "<html><body>We will be back soon</body></html>"


@pytest.mark.parametrize("verb", ["pop", "ack", "extend"])
async def test_a_page_in_place_of_an_answer_ends_neither_the_consumer_nor_the_handler(verb: str) -> None:
    server, pages = Server("m"), []

    async def serve(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith(verb) and len(pages) < 2:
            pages.append(request)
            return httpx2.Response(200, text=PAGE)
        return await server(request)

    async def handle(message: ReceivedMessage) -> None:
        async with asyncio.timeout(5):
            while verb == "extend" and server.extended < 2:
                await server.extended_twice.wait()

    async with client(serve, retry_attempts=1 if verb == "extend" else 3) as weir:
        consumer = Consumer(weir, "q", handle, wait=0, lease=0.03)
        running = asyncio.create_task(consumer.run())
        await server.until_settled(1)
        consumer.stop()
        await running
    assert (len(pages), server.verbs()) == (2, {"m": "ack"})


async def handle_nothing(message: ReceivedMessage) -> None:
    raise AssertionError("there is no message")


@pytest.mark.parametrize("status", [401, 404, 422])
async def test_a_request_that_is_never_accepted_ends_the_consumer(status: int) -> None:
    requests = []

    def serve(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return problem(status, "no")

    async with client(serve) as weir, asyncio.timeout(5):
        with pytest.raises(ApiError, match="no"):
            await Consumer(weir, "q", handle_nothing).run()
    assert len(requests) == 1


async def test_trouble_with_the_server_is_waited_out() -> None:
    answers = [problem(503, "unavailable"), httpx2.ConnectError("refused"), problem(429, "overloaded")]
    server = Server("m")

    async def serve(request: httpx2.Request) -> httpx2.Response:
        if answers:
            answer = answers.pop()
            if isinstance(answer, Exception):
                raise answer
            return answer
        return await server(request)

    async def handle(message: ReceivedMessage) -> None:
        pass

    async with client(serve, retry_attempts=1) as weir:
        consumer = Consumer(weir, "q", handle, wait=0)
        running = asyncio.create_task(consumer.run())
        await server.until_settled(1)
        consumer.stop()
        await running
    assert server.verbs() == {"m": "ack"}
