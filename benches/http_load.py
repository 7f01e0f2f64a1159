"""A closed-loop HTTP load generator: raw sockets on uvloop, so cheap that it does not distort the figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

from benches.figures import percentile

_PATIENCE_S = 30.0
RequestMaker = Callable[[], bytes | None]
"""The next request; None ends the connection."""
ReplyReader = Callable[[bytes], None]


@dataclass(slots=True)
class Load:
    """The answers that a run of load got."""

    seconds: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    failures: dict[int, int] = field(default_factory=dict)
    """Answers other than 2xx, by status."""

    @property
    def per_s(self) -> float:
        return len(self.latencies_s) / self.seconds

    def percentile_ms(self, share: float) -> float:
        return percentile(self.latencies_s, share) * 1000


class _Connection(asyncio.Protocol):
    """Sends the next request as soon as the last one is answered."""

    def __init__(self, make: RequestMaker, load: Load, *, until: float, read: ReplyReader | None) -> None:
        self._make = make
        self._load = load
        self._until = until
        self._read = read
        self._buffer = b""
        self._sent_at = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._buffer.find(b"content-length: ") + 16
        length = int(self._buffer[at : self._buffer.find(b"\r", at)])
        if len(self._buffer) < head + 4 + length:
            return
        self._answered(int(self._buffer[9:12]), self._buffer[head + 4 :])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server hung up"))

    def _answered(self, status: int, body: bytes) -> None:
        now = time.perf_counter()
        if 200 <= status < 300:
            self._load.latencies_s.append(now - self._sent_at)
            if self._read is not None:
                self._read(body)
        else:
            self._load.failures[status] = self._load.failures.get(status, 0) + 1
        self._buffer = b""
        self._send()

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        message = self._make() if self._sent_at < self._until else None
        if message is None:
            self.done.set_result(None)
            self._transport.close()
        else:
            self._transport.write(message)


async def generate(
    url: str, make: RequestMaker, *, seconds: float, connections: int, read: ReplyReader | None = None
) -> Load:
    """Keep `connections` requests in flight for some seconds."""
    load = Load()
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    started = time.perf_counter()

    def connection() -> _Connection:
        return _Connection(make, load, until=started + seconds, read=read)

    opened = [
        await loop.create_connection(connection, parts.hostname or "", parts.port or 80)
        for _ in range(connections)
    ]
    async with asyncio.timeout(seconds + _PATIENCE_S):
        await asyncio.gather(*(protocol.done for _, protocol in opened))
    load.seconds = time.perf_counter() - started
    return load


def request(path: str, body: bytes, *, token: str = "") -> bytes:
    """The bytes of one POST."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {token}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
