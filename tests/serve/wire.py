"""A small application on a real socket, and clients that write bytes as they please."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.types import Receive, Scope, Send

from weir.api.bodies import read_body
from weir.api.edge import Edge
from weir.api.hot import HotRequest, HotRoute, HotRoutes
from weir.api.limits import Limits
from weir.api.services import Services
from weir.api.wire import Instruments, Reply
from weir.errors import Unauthenticated
from weir.serve.forwarded import TrustedProxies
from weir.serve.server import bind, listening
from weir.serve.tls import CertificateFiles

LIMITS = Limits(max_body_bytes=100_000, header_timeout_s=0.3, body_timeout_s=0.3)
PATIENT = Limits(max_body_bytes=100_000)
"""So much time that on a busy machine only size can be the reason."""
LARGE_ANSWER = b"x" * 16_000_000
"""More than the kernel keeps for a client that does not read."""


class Site:
    """What the routes do, and what they saw."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun = asyncio.Event()
        self.left = asyncio.Event()
        self.sent_all = asyncio.Event()
        self.pages = 0
        """Large pages that were made."""
        self.headers: dict[str, str] = {}
        self.seen_as: tuple[str, str] = ("", "")
        """The address and the scheme of the client, as the application sees them."""

    async def size(self, call: HotRequest) -> Reply:
        self.headers = dict(call.headers)
        self.seen_as = (call.scope["client"][0], call.scope["scheme"])
        return Reply.json({"bytes": len(await read_body(call.headers, call.receive, call.services.limits))})

    async def refused(self, call: HotRequest) -> Reply:
        raise Unauthenticated("no")

    async def held(self, call: HotRequest) -> Reply:
        """Answers when it is let go; reads nothing before."""
        self.begun.set()
        await self.go.wait()
        return await self.size(call)

    async def watched(self, call: HotRequest) -> Reply:
        """Answers when its client leaves."""
        self.begun.set()
        while (await call.receive())["type"] != "http.disconnect":
            pass
        self.left.set()
        return Reply.json({})

    async def page(self, _: HotRequest) -> Reply:
        self.pages += 1
        return Reply(body=LARGE_ANSWER)

    async def large(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(4):
            await send({"type": "http.response.body", "body": LARGE_ANSWER, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        self.sent_all.set()


@asynccontextmanager
async def serving(
    limits: Limits,
    site: Site | None = None,
    *,
    tls: CertificateFiles | None = None,
    proxies: TrustedProxies | None = None,
) -> AsyncIterator[int]:
    """The port of the application."""
    site = site or Site()
    services = Services(broker=None, authenticator=None, pusher=None, settler=None, limits=limits)  # type: ignore[arg-type]
    endpoints = {
        "/size": site.size,
        "/refused": site.refused,
        "/held": site.held,
        "/watched": site.watched,
        "/page": site.page,
    }
    routes = HotRoutes(tuple(HotRoute(path=path, endpoints={"POST": do}) for path, do in endpoints.items()))
    edge = Edge(services, hot=routes, control=site.large, instruments=Instruments())
    listener = bind("127.0.0.1", 0)
    async with listening(
        edge, listener, stopping=services.stopping.set, limits=limits, grace_s=2, tls=tls, proxies=proxies
    ):
        yield listener.getsockname()[1]


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def answer(reader: asyncio.StreamReader) -> tuple[int, Any]:
    """The status and the document of the next answer."""
    status, _, document = await whole_answer(reader)
    return status, document


async def whole_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], Any]:
    async with asyncio.timeout(10):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.split(": ", 1) for line in head.strip().split("\r\n")[1:])
        return int(head[9:12]), headers, json.loads(await reader.readexactly(int(headers["content-length"])))


async def closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server has ended the connection, without another word."""
    async with asyncio.timeout(10):
        with suppress(ConnectionError):
            return await reader.read() == b""
        return True


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        await event.wait()


def head(length: int | str, *, path: str = "/size", headers: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: weir\r\ncontent-length: {length}\r\n{headers}\r\n".encode()


def chunked_head(*, path: str = "/size") -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: weir\r\ntransfer-encoding: chunked\r\n\r\n".encode()


async def pour(writer: asyncio.StreamWriter, piece: bytes, *, megabytes: int = 64) -> int:
    """Send a piece again and again, until the other side hangs up; how many bytes it took."""
    sent = 0
    with suppress(ConnectionError):
        while sent < megabytes * 1_048_576:
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
    return sent


async def trickle(writer: asyncio.StreamWriter, piece: bytes) -> None:
    """Send a piece every now and then, until the other side hangs up; fail if it does not."""
    with suppress(ConnectionError):
        async with asyncio.timeout(10):
            while True:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)
