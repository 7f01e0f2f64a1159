"""A tiny HTTP receiver on loopback whose answer a test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Receiver:
    """Requests as they came, and the raw answer for the next ones."""

    port: int = 0
    answer: bytes | Callable[[int], bytes] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.requests.append((headers, body))
            answer = self.answer(len(self.requests)) if callable(self.answer) else self.answer
            writer.write(answer)
            await writer.drain()
            if not answer:
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def plain(status: int, **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: 0\r\n{lines}\r\n".encode()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    async with server:
        yield receiver
