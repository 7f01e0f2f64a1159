"""The API on a real socket: large, slow, lying and vanishing clients."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from support.waiting import until

from .wire import LARGE_ANSWER, LIMITS, Site, answer, closed, connected, head, serving


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serving(LIMITS) as port:
        yield port


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


async def test_a_body_that_is_too_short_is_a_timeout_and_one_that_is_too_long_ends_the_connection(
    port: int,
) -> None:
    async with connected(port) as (reader, writer):
        writer.write(head(10) + b"12345")
        status, problem = await answer(reader)
        assert (status, problem["code"]) == (408, "request_timeout")
    async with connected(port) as (reader, writer):
        writer.write(head(2) + b"12345 not http\r\n\r\n")
        assert await answer(reader) == (200, {"bytes": 2})
        assert await closed(reader)


@pytest.mark.parametrize("start", [b"", b"POST /size HTTP/1.1\r\nhost: w"])
async def test_slow_headers_are_hung_up_on(port: int, start: bytes) -> None:
    async with connected(port) as (reader, writer):
        writer.write(start)
        if start:
            status, problem = await answer(reader)
            assert (status, problem["code"]) == (408, "request_timeout")
        assert await closed(reader)


async def test_many_slow_clients_do_not_hinder_a_quick_one() -> None:
    # Who has not sent a byte in time is hung up on without an answer: on a busy machine that needs patience.
    async with serving(replace(LIMITS, header_timeout_s=1.5)) as port, AsyncExitStack() as stack:
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


async def test_an_answer_is_not_made_before_the_ones_ahead_of_it_are_read() -> None:
    site = Site()
    async with serving(LIMITS, site) as port, connected(port) as (reader, writer):
        writer.write(3 * head(0, path="/page"))
        await until(lambda: site.pages)
        async with connected(port) as (other, other_writer):
            for _ in range(20):
                other_writer.write(head(0))
                assert await answer(other) == (200, {"bytes": 0})
        assert site.pages == 1
        for _ in range(3):
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(len(LARGE_ANSWER))
        assert site.pages == 3


async def test_a_client_that_leaves_without_reading_is_asked_nothing_more() -> None:
    site = Site()
    async with serving(LIMITS, site) as port:
        async with connected(port) as (_, writer):
            writer.write(3 * head(0, path="/page"))
            await until(lambda: site.pages)
        async with connected(port) as (other, other_writer):
            other_writer.write(head(0))
            assert await answer(other) == (200, {"bytes": 0})
        assert site.pages == 1
