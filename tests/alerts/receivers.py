"""Real receivers on loopback: HTTP servers that answer as told, and a mail server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Received:
    head: str
    body: bytes


@dataclass
class Receiver:
    url: str = ""
    port: int = 0
    requests: list[Received] = field(default_factory=list)
    answer: Callable[[int], bytes] = lambda _: b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    hang: bool = False


@asynccontextmanager
async def receiving(
    answer: Callable[[int], bytes] | None = None, *, hang: bool = False
) -> AsyncIterator[Receiver]:
    """A server that answers request number n with `answer(n)`."""
    receiver = Receiver(hang=hang)
    if answer is not None:
        receiver.answer = answer
    release = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                int(line.split(":")[1])
                for line in head.splitlines()
                if line.lower().startswith("content-length")
            )
            receiver.requests.append(Received(head=head, body=await reader.readexactly(length)))
            if receiver.hang:
                await release.wait()
                return
            writer.write(receiver.answer(len(receiver.requests) - 1))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    receiver.url = f"http://127.0.0.1:{receiver.port}/hook"
    try:
        yield receiver
    finally:
        release.set()
        server.close()
        await server.wait_closed()


def status(code: int, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {code} X", "content-length: 0", *headers, "", ""]
    return "\r\n".join(lines).encode()
