"""Pushes that are turned away at the door, on a real socket: cheap, complete, and the connection lives on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from support.waiting import until
from weir.admission.admission import Admission
from weir.api.edge import Edge
from weir.api.hot import HotRequest, HotRoute, HotRoutes
from weir.api.limits import Limits
from weir.api.services import Services
from weir.api.wire import Instruments, Reply
from weir.control.principals import Principal, Role
from weir.errors import Overloaded
from weir.exchange.admit import AnswerTally
from weir.model.holders import HOLDER, STRANGERS
from weir.serve.protocol import LimitedProtocol
from weir.serve.server import bind, listening

BODY = b'{"items":[]}'


class Tokens:
    """Knows tokens by the name of their organization; those that are known were verified already."""

    known = ("loud", "quiet")

    async def authenticate(self, text: str) -> Principal:
        return Principal(token_id=text, role=Role.WRITE, organization=text)

    def recall(self, text: str) -> tuple[Principal, bool] | None:
        if text not in self.known:
            return None
        return Principal(token_id=text, role=Role.WRITE, organization=text), True


class Pushes:
    """An application whose pushes wait until they are let go."""

    def __init__(self) -> None:
        self.admission = Admission()
        self.tally = AnswerTally()
        self.begun = 0
        self.go = asyncio.Event()

    async def push(self, call: HotRequest) -> Reply:
        self.begun += 1
        if "authorization" in call.headers:
            await call.access(Role.WRITE)
        with self.admission.executing(HOLDER.get()):
            await call.body()
            await self.go.wait()
        return Reply.json({}, status=201)


@pytest.fixture
async def pushes() -> Pushes:
    return Pushes()


@pytest.fixture
async def port(pushes: Pushes) -> AsyncIterator[int]:
    overflow = SimpleNamespace(
        refuse=lambda *, times=1: Overloaded(
            "busy; try later", retry_after_s=3, quota=10, reason="burst_spent"
        )
    )
    operations: Any = SimpleNamespace(admission=pushes.admission, overflow=overflow, tally=pushes.tally)
    services = Services(
        broker=cast(Any, None), authenticator=cast(Any, Tokens()), pusher=cast(Any, None),
        settler=cast(Any, None), operations=operations,
    )  # fmt: skip
    routes = HotRoutes((HotRoute(path="/api/v1/push", endpoints={"POST": pushes.push}),))
    edge = Edge(services, hot=routes, control=cast(Any, None), instruments=Instruments())
    listener = bind("127.0.0.1", 0)
    async with listening(edge, listener, stopping=services.stopping.set, grace_s=2):
        yield listener.getsockname()[1]


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def send(self, *, headers: str = "", body: bytes = BODY) -> None:
        head = f"POST /api/v1/push HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
        self.writer.write(head.encode() + body)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(5):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.strip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            return (
                int(status.split()[1]),
                headers,
                await self._reader.readexactly(int(headers["content-length"])),
            )

    async def closed(self) -> bool:
        async with asyncio.timeout(5):
            return await self._reader.read(1) == b""


@asynccontextmanager
async def peer(port: int) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()


def overload(admission: Admission) -> None:
    admission.in_flight = 10_000
    admission.budget.spend(10_000, STRANGERS)


async def test_a_push_that_is_turned_away_is_a_problem_and_the_connection_serves_the_next_one(
    port: int, pushes: Pushes
) -> None:
    overload(pushes.admission)
    async with peer(port) as one:
        for _ in range(3):
            one.send()
            status, headers, body = await one.answer()
            assert status == 429
            assert headers["retry-after"] == "3"
            assert headers["content-type"] == "application/problem+json"
            problem = orjson.loads(body)
            assert problem["code"] == "overloaded"
            assert problem["instance"] == f"urn:uuid:{headers['request-id']}"
        pushes.admission.in_flight = 0
        pushes.go.set()
        one.send()
        assert (await one.answer())[0] == 201
    assert pushes.begun == 1
    assert pushes.admission.arriving == 0
    assert pushes.tally.pushes == {("429", "burst_spent"): 3}


async def test_a_body_in_pieces_is_skipped_before_the_refusal(port: int, pushes: Pushes) -> None:
    overload(pushes.admission)
    async with peer(port) as one:
        one.writer.write(b"POST /api/v1/push HTTP/1.1\r\nhost: x\r\ncontent-length: 12\r\n\r\n" + BODY[:5])
        await one.writer.drain()
        one.writer.write(BODY[5:])
        assert (await one.answer())[0] == 429
        one.send()
        assert (await one.answer())[0] == 429


async def test_whoever_asks_to_close_is_turned_away_and_hung_up(port: int, pushes: Pushes) -> None:
    overload(pushes.admission)
    async with peer(port) as one:
        one.send(headers="connection: close\r\n")
        assert (await one.answer())[0] == 429
        assert await one.closed()


async def test_those_that_arrive_together_are_seen_together(port: int, pushes: Pushes) -> None:
    """No more begin than may be executed, though all have arrived before the first one began."""
    pushes.admission.budget.spend(10_000, STRANGERS)
    limit = pushes.admission.limit.limit
    peers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * limit)]
    everyone = [Peer(*streams) for streams in peers]
    for one in everyone:
        one.send()
    answers = [asyncio.create_task(one.answer()) for one in everyone]
    async with asyncio.timeout(5):
        while sum(task.done() for task in answers) < 2 * limit:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert pushes.begun == limit
    pushes.go.set()
    statuses = [(await task)[0] for task in answers]
    assert statuses.count(201) == limit
    assert statuses.count(429) == 2 * limit
    assert pushes.admission.arriving == 0
    for one in everyone:
        one.writer.close()


async def shed_once(one: Peer) -> None:
    """Be turned away, after which the door answers whole pushes without reading them."""
    one.send()
    assert (await one.answer())[0] == 429


async def test_a_whole_push_is_turned_away_unparsed_while_others_are(
    port: int, pushes: Pushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    parse = LimitedProtocol.data_received
    monkeypatch.setattr(
        LimitedProtocol, "data_received", lambda self, data: (parsed.append(len(data)), parse(self, data))[0]
    )
    overload(pushes.admission)
    async with peer(port) as one:
        await shed_once(one)
        seen = len(parsed)
        for headers in ("", "Connection: keep-alive\r\n"):
            one.send(headers=headers)
            status, answered, body = await one.answer()
            assert status == 429
            assert orjson.loads(body)["instance"] == f"urn:uuid:{answered['request-id']}"
        assert len(parsed) == seen
        pushes.admission.in_flight = 0
        pushes.go.set()
        one.send()
        assert (await one.answer())[0] == 201
        assert len(parsed) > seen


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("connection: close\r\n", 429),
        ("content-length: 12\r\n", 400),
        ("transfer-encoding: chunked\r\n", 400),
    ],
)
async def test_what_is_not_plain_is_parsed_before_it_is_turned_away(
    port: int, pushes: Pushes, headers: str, status: int
) -> None:
    overload(pushes.admission)
    async with peer(port) as one:
        await shed_once(one)
        one.send(headers=headers)
        assert (await one.answer())[0] == status
        assert await one.closed()


async def test_two_pushes_in_one_piece_are_both_answered(port: int, pushes: Pushes) -> None:
    overload(pushes.admission)
    async with peer(port) as one:
        await shed_once(one)
        head = f"POST /api/v1/push HTTP/1.1\r\nhost: x\r\ncontent-length: {len(BODY)}\r\n\r\n".encode()
        one.writer.write(2 * (head + BODY))
        assert [(await one.answer())[0] for _ in range(2)] == [429, 429]


async def test_a_long_row_of_pushes_in_one_piece_waits_for_its_turn_in_the_application(
    port: int, pushes: Pushes
) -> None:
    overload(pushes.admission)
    async with peer(port) as one:
        head = f"POST /api/v1/push HTTP/1.1\r\nhost: x\r\ncontent-length: {len(BODY)}\r\n\r\n".encode()
        one.writer.write(60 * (head + BODY))
        refused = [(await one.answer())[0] for _ in range(Limits().max_pipelined)]
        assert set(refused) == {429}
        await until(lambda: pushes.begun)
        pushes.go.set()
        assert (await one.answer())[0] == 201


ELSEWHERE = "weir-project: p\r\nweir-environment: e\r\n"


def sent_by(token: str, extra: str = ELSEWHERE) -> str:
    return f"Authorization: Bearer {token}\r\n{extra}"


async def fill(port: int, pushes: Pushes, stack: AsyncExitStack) -> None:
    """One tenant has as many pushes in progress as the process takes."""
    pushes.admission.budget.spend(10_000, STRANGERS)
    limit = pushes.admission.limit.limit
    for _ in range(limit):
        one = await stack.enter_async_context(peer(port))
        one.send(headers=sent_by("loud"))
    async with asyncio.timeout(5):
        while pushes.begun < limit:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_quiet_tenant_is_let_in_while_another_is_turned_away(port: int, pushes: Pushes) -> None:
    async with AsyncExitStack() as stack:
        await fill(port, pushes, stack)
        loud, quiet = [await stack.enter_async_context(peer(port)) for _ in range(2)]
        for _ in range(3):
            # The first is parsed; then the process is shedding, and what comes in one piece is not.
            loud.send(headers=sent_by("loud"))
            assert (await loud.answer())[0] == 429
        before = pushes.begun
        quiet.send(headers=sent_by("quiet"))
        async with asyncio.timeout(5):
            while pushes.begun == before:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        loud.send(headers=sent_by("loud"))
        assert (await loud.answer())[0] == 429
        pushes.go.set()
        assert (await quiet.answer())[0] == 201
    assert pushes.admission.shares.total == pushes.admission.in_flight == pushes.admission.beyond == 0


@pytest.mark.parametrize("token", ["loud", "made-up"])
async def test_what_a_request_says_about_itself_gives_it_no_share(
    port: int, pushes: Pushes, token: str
) -> None:
    """Neither other environments of a wide token nor tokens that nobody verified."""
    async with AsyncExitStack() as stack:
        await fill(port, pushes, stack)
        limit, before = pushes.admission.limit.limit, pushes.begun
        peers = [await stack.enter_async_context(peer(port)) for _ in range(2 * limit)]
        for number, one in enumerate(peers):
            name = token if token == "loud" else f"{token}{number}"
            one.send(headers=sent_by(name, f"weir-project: p\r\nweir-environment: e{number}\r\n"))
        answers = [asyncio.create_task(one.answer()) for one in peers]
        most = 0 if token == "loud" else limit // 2
        async with asyncio.timeout(5):
            while sum(task.done() for task in answers) < len(peers) - most:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert {task.result()[0] for task in answers if task.done()} == {429}
        assert pushes.begun - before == most
        pushes.go.set()
        await asyncio.gather(*answers)
