"""The API on a real socket: large, slow, lying and vanishing clients."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from weir.api.bodies import read_body
from weir.api.edge import Edge
from weir.api.hot import Call, HotRoute, HotRoutes
from weir.api.instruments import Instruments
from weir.api.limits import Limits
from weir.api.reply import Reply
from weir.api.services import Services
from weir.serve.protocol import PatientProtocol
from weir.serve.server import bind, listening

LIMITS = Limits(max_body_bytes=100_000, body_timeout_s=0.3)


async def _echo_size(call: Call) -> Reply:
    return Reply.json({"bytes": len(await read_body(call.headers, call.receive, call.services.limits))})


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("only the hot route is asked")


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(PatientProtocol, "header_timeout_s", 0.3)
    services = Services(broker=None, authenticator=None, pusher=None, settler=None, limits=LIMITS)  # type: ignore[arg-type]
    routes = HotRoutes((HotRoute(path="/size", endpoints={"POST": _echo_size}),))
    edge = Edge(services, hot=routes, control=_nothing, instruments=Instruments())
    listener = bind("127.0.0.1", 0)
    async with listening(edge, listener, stopping=services.stopping.set, grace_s=2):
        yield listener.getsockname()[1]


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def answer(reader: asyncio.StreamReader) -> tuple[int, Any]:
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.splitlines() if line.startswith(b"content-length")
        )
        return int(head[9:12]), json.loads(await reader.readexactly(length))


async def closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(10):
        return await reader.read() == b""


def head(length: int | str) -> bytes:
    return f"POST /size HTTP/1.1\r\nhost: weir\r\ncontent-length: {length}\r\n\r\n".encode()


async def test_a_body_at_the_limit_is_taken_and_the_connection_kept(port: int) -> None:
    async with connected(port) as (reader, writer):
        for _ in range(2):
            writer.write(head(100_000) + b"x" * 100_000)
            assert await answer(reader) == (200, {"bytes": 100_000})


async def test_an_announced_byte_too_many_is_refused_unread(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(head(100_001))
        status, problem = await answer(reader)
        assert (status, problem["code"]) == (413, "too_large")
        assert await closed(reader)


async def _flood(writer: asyncio.StreamWriter) -> None:
    """A gigabyte, unless the other side hangs up."""
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    for _ in range(16_384):
        writer.write(chunk)
        await writer.drain()


async def test_an_endless_stream_is_cut_at_the_limit(port: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with connected(port) as (reader, writer):
        writer.write(b"POST /size HTTP/1.1\r\nhost: weir\r\ntransfer-encoding: chunked\r\n\r\n")
        flood = asyncio.create_task(_flood(writer))
        status, problem = await answer(reader)
        assert (status, problem["code"]) == (413, "too_large")
        with pytest.raises(ConnectionError):
            await flood
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 64 * 1024


async def test_a_lying_length_is_a_timeout_or_malformed(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(head(10) + b"12345")
        status, problem = await answer(reader)
        assert (status, problem["code"]) == (408, "request_timeout")
    async with connected(port) as (reader, writer):
        writer.write(head(2) + b"12345 not http\r\n\r\n")
        status, problem = await answer(reader)
        assert (status, problem["code"]) == (400, "malformed")
        assert await closed(reader)


@pytest.mark.parametrize("start", [b"", b"POST /size HTTP/1.1\r\nhost: w"])
async def test_slow_headers_are_hung_up_on(port: int, start: bytes) -> None:
    async with connected(port) as (reader, writer):
        writer.write(start)
        if start:
            status, problem = await answer(reader)
            assert (status, problem["code"]) == (408, "request_timeout")
        assert await closed(reader)


async def test_many_slow_clients_do_not_hinder_a_quick_one(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who has not sent a byte in time is hung up on without an answer: on a busy machine that needs patience.
    monkeypatch.setattr(PatientProtocol, "header_timeout_s", 1.5)
    async with AsyncExitStack() as stack:
        slow = []
        for _ in range(200):
            slow.append(await stack.enter_async_context(connected(port)))
            slow[-1][1].write(b"POST /size HTTP/1.1\r\nhost: w\r\nx: ")
        async with asyncio.timeout(5), connected(port) as (reader, writer):
            writer.write(head(1) + b"x")
            assert await answer(reader) == (200, {"bytes": 1})
        for reader, _ in slow:
            assert (await answer(reader))[0] == 408


async def test_endless_headers_are_refused(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(b"POST /size HTTP/1.1\r\n")
        writer.write(b"x: " + b"y" * 70_000)
        status, problem = await answer(reader)
        assert (status, problem["code"]) == (431, "headers_too_large")
        assert await closed(reader)


@pytest.mark.parametrize("text", [b"nonsense\r\n\r\n", b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"])
async def test_what_is_not_http_is_malformed(port: int, text: bytes) -> None:
    async with connected(port) as (reader, writer):
        writer.write(text)
        status, problem = await answer(reader)
        assert (status, problem["code"]) == (400, "malformed")
        assert await closed(reader)


async def test_a_client_that_vanishes_leaves_nothing_behind(port: int) -> None:
    async with connected(port) as (_, writer):
        writer.write(head(50) + b"x")
    async with connected(port) as (reader, writer):
        writer.write(head(1) + b"x")
        assert await answer(reader) == (200, {"bytes": 1})
