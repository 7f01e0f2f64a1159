"""A request that offers another protocol, as Java's clients and `curl --http2` do, goes on in HTTP/1.1."""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest

from .wire import PATIENT, answer, chunked_head, closed, connected, head, serving

OFFER = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAAB\r\n"
CHUNKED = chunked_head().replace(b"\r\n\r\n", b"\r\n" + OFFER.encode() + b"\r\n")
BODY = b"x" * 50_000


@pytest.mark.parametrize("offer", [OFFER, "connection: upgrade\r\nupgrade: websocket\r\n"])
async def test_a_request_that_offers_another_protocol_keeps_its_body_and_its_connection(offer: str) -> None:
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        for body in (BODY, b"", b"{}"):
            writer.write(head(len(body), headers=offer) + body)
            assert await answer(reader) == (200, {"bytes": len(body)})


async def test_an_offer_without_a_body_is_answered_in_http_1_1() -> None:
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        for _ in range(2):
            writer.write(f"GET /size HTTP/1.1\r\nhost: weir\r\n{OFFER}\r\n".encode())
            assert (await answer(reader))[0] == 405


async def test_the_offer_may_arrive_byte_by_byte_and_its_body_later() -> None:
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        for byte in head(3, headers=OFFER) + b"a":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"bc")
        assert await answer(reader) == (200, {"bytes": 3})


async def test_a_chunked_body_behind_an_offer_is_read() -> None:
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        writer.write(CHUNKED + b"5\r\nhello\r\n3\r\nyou\r\n0\r\n\r\n")
        assert await answer(reader) == (200, {"bytes": 8})


async def test_offers_may_be_sent_ahead_of_each_other() -> None:
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        offered = head(4, headers=OFFER) + b"four"
        writer.write(offered + CHUNKED + b"2\r\n{}\r\n0\r\n\r\n" + head(1) + b"1" + offered)
        for size in (4, 2, 1, 4):
            assert await answer(reader) == (200, {"bytes": size})


async def test_the_headers_of_an_offer_are_within_the_same_limits() -> None:
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        writer.write(head(2, headers=OFFER + "x: " + "y" * 70_000 + "\r\n") + b"{}")
        status, problem = await answer(reader)
        assert (status, problem["code"]) == (431, "headers_too_large")


async def test_a_tunnel_is_answered_and_its_connection_ends() -> None:
    async with serving(PATIENT) as port, connected(port) as (reader, writer):
        writer.write(b"CONNECT /size HTTP/1.1\r\nhost: weir\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
        assert (await answer(reader))[0] in (400, 405)
        assert await closed(reader)


async def test_curl_may_offer_http2() -> None:
    curl = shutil.which("curl")
    assert curl is not None, "install curl"
    async with serving(PATIENT) as port:
        url = f"http://127.0.0.1:{port}/size"
        command = [
            curl,
            "--http2",
            "-s",
            "--data-binary",
            "@-",
            url,
            "--next",
            "--http2",
            "-s",
            "-d",
            "one",
            url,
        ]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await asyncio.wait_for(process.communicate(BODY), 30)
    assert [json.loads(part) for part in said.replace(b"}{", b"}\n{").splitlines()] == [
        {"bytes": len(BODY)},
        {"bytes": 3},
    ]
