"""All of a request but its body is bounded in size and time, on every route, before and after an answer."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace

import pytest

from support.waiting import until
from weir.serve.protocol import LimitedProtocol

from .wire import (
    LIMITS,
    PATIENT,
    Site,
    answer,
    chunked_head,
    closed,
    connected,
    head,
    pour,
    serving,
    soon,
    trickle,
    whole_answer,
)

OVER = 70_000
LINE = b"x-filler: " + b"y" * 80 + b"\r\n"
END = b"0\r\n\r\n"


@pytest.mark.parametrize("path", ["/size", "/refused", "/nowhere"])
@pytest.mark.parametrize(
    "headers",
    ["x: " + "y" * OVER + "\r\n", ("x: " + "y" * 1_000 + "\r\n") * 70],
    ids=["one", "seventy"],
)
async def test_large_headers_in_one_write_are_refused(path: str, headers: str) -> None:
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        writer.write(head(2, path=path, headers=headers) + b"{}")
        status, problem = await answer(reader)
        assert (status, problem["code"]) == (431, "headers_too_large")
        assert await closed(reader)


async def test_headers_just_below_the_limit_are_taken_with_a_body_behind_them() -> None:
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        for _ in range(2):
            writer.write(head(90_000, headers="x: " + "y" * 65_000 + "\r\n") + b"z" * 90_000)
            assert await answer(reader) == (200, {"bytes": 90_000})


async def test_too_many_headers_are_refused() -> None:
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        writer.write(head(0, headers="".join(f"x{number}: 1\r\n" for number in range(200))))
        assert (await answer(reader))[0] == 431
        assert await closed(reader)


async def test_a_long_target_is_refused() -> None:
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        writer.write(head(0, path="/size?" + "q" * 20_000))
        status, problem = await answer(reader)
        assert (status, problem["code"]) == (414, "target_too_long")
        assert await closed(reader)


@pytest.mark.parametrize(
    "piece",
    [LINE * 100, b"y" * 10_000, b"1;" + b"e" * 10_000 + b"\r\nz\r\n"],
    ids=["trailers", "one trailer", "chunk extensions"],
)
async def test_endless_framing_is_refused_at_its_limit(piece: bytes) -> None:
    start = {b"x": b"0\r\n", b"y": b"0\r\nx: ", b"1": b""}[piece[:1]]
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        writer.write(chunked_head() + b"2\r\n{}\r\n" + start)
        pouring = asyncio.create_task(pour(writer, piece))
        status, problem = await answer(reader)
        assert (status, problem["code"]) == (431, "headers_too_large")
        assert await closed(reader)
        assert await pouring < 16 * 1_048_576


@pytest.mark.parametrize("size", [100_000, 1_000_000])
@pytest.mark.parametrize("framing", ["trailer", "trailers", "extension"])
async def test_large_framing_in_one_write_is_refused(framing: str, size: int) -> None:
    filler = b"y" * size
    pieces = {
        "trailer": b"2\r\n{}\r\n0\r\nx: " + filler + b"\r\n\r\n",
        "trailers": b"2\r\n{}\r\n0\r\n" + LINE * (size // len(LINE)) + b"\r\n",
        "extension": b"2;" + filler + b"\r\n{}\r\n" + END,
    }
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        writer.write(chunked_head() + pieces[framing])
        assert (await answer(reader))[0] == 431
        assert await closed(reader)


async def test_a_body_in_tiny_chunks_is_taken() -> None:
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        for _ in range(2):
            writer.write(chunked_head() + b"1\r\nz\r\n" * 90_000 + END)
            assert await answer(reader) == (200, {"bytes": 90_000})


async def test_trailers_never_become_headers() -> None:
    site = Site()
    async with serving(PATIENT, site) as port, connected(port) as (reader, writer):
        writer.write(chunked_head() + b"0\r\nAuthorization: Bearer x\r\nx-late: 1\r\n\r\n")
        assert (await answer(reader))[0] == 200
    assert not {"authorization", "x-late"} & set(site.headers)


@pytest.mark.parametrize("slow", [b"0\r\nx: ", b"1;x=", b"5\r\nab", b"\x30"])
async def test_a_request_that_does_not_end_is_a_timeout(slow: bytes) -> None:
    async with serving(LIMITS) as port, connected(port) as (reader, writer):
        writer.write(chunked_head() + slow)
        status, problem = await answer(reader)
        assert (status, problem["code"]) == (408, "request_timeout")
        assert await closed(reader)


@pytest.mark.parametrize("path", ["/refused", "/size?over"])
@pytest.mark.parametrize("piece", [LINE, b"z" * 65_536], ids=["trailers", "body"])
async def test_after_an_error_before_the_end_of_the_request_the_connection_ends(
    path: str, piece: bytes
) -> None:
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        start = head(200_000, path=path) if piece[:1] == b"z" else chunked_head(path="/refused") + b"0\r\n"
        writer.write(start)
        status, headers, _ = await whole_answer(reader)
        assert status in (401, 413)
        assert headers["connection"] == "close"
        assert await pour(writer, piece, megabytes=64) < 64 * 1_048_576
        assert await closed(reader)


async def test_who_sends_the_whole_body_before_reading_still_gets_the_refusal() -> None:
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        writer.write(head(2_000_000, path="/refused"))
        for _ in range(20):
            writer.write(b"z" * 100_000)
            await writer.drain()
        assert (await answer(reader))[0] == 401
        assert await closed(reader)


async def test_a_refused_client_that_sends_slowly_is_left_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weir.serve.transport.LINGER_S", 0.2)
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        writer.write(head(1_000, path="/refused"))
        assert (await answer(reader))[0] == 401
        await trickle(writer, b"z")


async def test_blank_lines_without_end_are_hung_up_on() -> None:
    async with serving(LIMITS) as port, connected(port) as (reader, writer):
        writer.write(head(1) + b"z")
        assert (await answer(reader))[0] == 200
        await trickle(writer, b"\r\n")


async def test_requests_sent_ahead_are_answered_in_order_up_to_a_limit() -> None:
    site = Site()
    async with serving(replace(PATIENT, max_pipelined=5), site) as port, connected(port) as (reader, writer):
        writer.write(b"".join(head(length, path="/held") + b"z" * length for length in range(1, 20)))
        await soon(site.begun)
        site.go.set()
        # One is being answered while five wait.
        assert [await answer(reader) for _ in range(6)] == [(200, {"bytes": n}) for n in range(1, 7)]
        assert await closed(reader)


async def test_a_bad_request_behind_good_ones_does_not_take_their_answers() -> None:
    site = Site()
    async with serving(PATIENT, site) as port, connected(port) as (reader, writer):
        writer.write(head(1, path="/held") + b"a" + head(2) + b"bb" + b"nonsense\r\n\r\n")
        await soon(site.begun)
        site.go.set()
        assert [await answer(reader) for _ in range(2)] == [(200, {"bytes": 1}), (200, {"bytes": 2})]
        assert await closed(reader)


async def test_a_slow_head_behind_a_request_ends_the_connection_after_its_answer() -> None:
    site = Site()
    async with serving(LIMITS, site) as port, connected(port) as (reader, writer):
        writer.write(head(1, path="/held") + b"a" + b"POST /size HT")
        await asyncio.sleep(3 * LIMITS.header_timeout_s)
        site.go.set()
        assert await answer(reader) == (200, {"bytes": 1})
        assert await closed(reader)


async def test_a_body_that_this_process_does_not_read_is_not_late() -> None:
    site = Site()
    async with serving(LIMITS, site) as port, connected(port) as (reader, writer):
        writer.write(head(100_000, path="/held") + b"z" * 99_999)
        await asyncio.sleep(3 * LIMITS.body_timeout_s)
        site.go.set()
        writer.write(b"z")
        assert await answer(reader) == (200, {"bytes": 100_000})


async def test_a_client_that_leaves_is_noticed_though_it_sent_another_request() -> None:
    site = Site()
    async with serving(PATIENT, site) as port:
        async with connected(port) as (_, writer):
            writer.write(head(0, path="/watched") + head(1))
            await soon(site.begun)
        await soon(site.left)


async def test_a_client_that_takes_nothing_of_its_answer_is_cut_off() -> None:
    async with serving(replace(PATIENT, send_timeout_s=0.3)) as port, connected(port) as (reader, writer):
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /large HTTP/1.1\r\nhost: weir\r\n\r\n")
        async with asyncio.timeout(10):
            while not writer.transport.is_closing():
                writer.write(b"\r\n")
                await asyncio.sleep(0.05)


async def test_a_client_that_takes_its_answer_slowly_gets_all_of_it() -> None:
    site = Site()
    limits = replace(PATIENT, send_timeout_s=0.5)
    async with serving(limits, site) as port, connected(port) as (reader, writer):
        writer.write(b"GET /large HTTP/1.1\r\nhost: weir\r\n\r\n")
        async with asyncio.timeout(30):
            while not site.sent_all.is_set():
                assert await reader.read(2_000_000)
                await asyncio.sleep(0.02)


_ENDS = {
    "headers too large": head(2, headers="x: " + "y" * OVER + "\r\n"),
    "answered": head(2) + b"{}",
    "refused": head(2, path="/refused") + b"{}",
    "trailers too large": chunked_head() + b"2\r\n{}\r\n0\r\n" + LINE * 1_000,
    "given up by the client": head(90_000) + b"z",
}


@pytest.mark.parametrize("sent", _ENDS.values(), ids=_ENDS.keys())
async def test_nothing_of_an_ended_connection_waits_for_the_garbage_collector(sent: bytes) -> None:
    async with serving(PATIENT) as port:
        gc.disable()
        try:
            for _ in range(10):
                async with connected(port) as (reader, writer):
                    writer.write(sent)
                    if not sent.endswith(b"z"):
                        await answer(reader)
            await until(lambda: not _protocols(), within_s=5)
        finally:
            gc.enable()


def _protocols() -> int:
    # By type: `isinstance` wakes lazy objects of other packages, which may then ask for their settings.
    return sum(issubclass(type(one), LimitedProtocol) for one in gc.get_objects())
