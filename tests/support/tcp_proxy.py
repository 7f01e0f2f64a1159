"""A TCP proxy that misbehaves on command: in front of Redis, PostgreSQL or ClickHouse.

async with TcpProxy.to(url) as proxy:
    broker = connect(proxy.url)
    proxy.drop_replies()        # requests arrive, their replies never come back
    …
    proxy.heal()
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import StrEnum
from typing import Self
from urllib.parse import urlsplit

_HOST = "127.0.0.1"
_CHUNK = 1 << 16


class Mode(StrEnum):
    """What the proxy does with bytes that arrive."""

    PASS = "pass"
    DROP_REQUESTS = "drop_requests"
    DROP_REPLIES = "drop_replies"
    BLACKHOLE = "blackhole"


class TcpProxy:
    """Listens on a port of its own and forwards to one server."""

    def __init__(self, host: str, port: int, *, url: str = "") -> None:
        self._target = (host, port)
        self._url = url
        self._mode = Mode.PASS
        self._delay_s = 0.0
        self._cut_next_reply = False
        self._accepting = True
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._stranded: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watched: dict[bytes, asyncio.Event] = {}
        self.replies = 0
        """How many chunks of replies the server has sent."""

    @classmethod
    def to(cls, url: str) -> Self:
        """A proxy to the server of `url`."""
        parts = urlsplit(url)
        if parts.hostname is None or parts.port is None:
            raise ValueError(f"`{url}` has no host and port")
        return cls(parts.hostname, parts.port, url=url)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, _HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    @property
    def port(self) -> int:
        if self._server is None:
            raise RuntimeError("the proxy is not open")
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """The server's URL, through this proxy."""
        parts = urlsplit(self._url)
        host = f"{_HOST}:{self.port}"
        login, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{login}{at}{host}").geturl()

    def drop_requests(self) -> None:
        """Swallow the requests of clients."""
        self._mode = Mode.DROP_REQUESTS

    def drop_replies(self) -> None:
        """Deliver requests, swallow the replies."""
        self._mode = Mode.DROP_REPLIES

    def drop_next_reply(self) -> None:
        """Swallow the next reply and cut its connection: the request ran, its client cannot know."""
        self._cut_next_reply = True

    def blackhole(self) -> None:
        """Keep connections open and forward nothing."""
        self._mode = Mode.BLACKHOLE

    def delay(self, seconds: float) -> None:
        """Hold every chunk back, in both directions."""
        self._delay_s = seconds

    def refuse(self) -> None:
        """Cut every connection and close new ones at once: the server looks gone."""
        self._accepting = False
        self.cut()

    def swallowed(self, request: bytes) -> asyncio.Event:
        """An event that is set when bytes that begin with `request` were swallowed."""
        return self._watched.setdefault(request, asyncio.Event())

    def cut(self) -> None:
        """Reset every open connection; new ones work."""
        for writer in list(self._writers):
            with suppress(Exception):
                writer.transport.abort()

    def strand(self) -> None:
        """Leave every open connection open and dead, also when the other side ends it; new ones work."""
        self._stranded |= self._writers

    def heal(self) -> None:
        """Forward everything again; stranded connections stay dead."""
        self._mode = Mode.PASS
        self._delay_s = 0.0
        self._cut_next_reply = False
        self._accepting = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._accepting:
            writer.transport.abort()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        if not self._accepting:
            # `refuse` was called while the server was being reached; `cut` did not know this connection yet.
            writer.transport.abort()
            server_writer.transport.abort()
            return
        self._writers |= {writer, server_writer}
        for source, sink, is_reply in ((reader, server_writer, False), (server_reader, writer, True)):
            task = asyncio.create_task(self._pump(source, sink, is_reply=is_reply))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_reply: bool
    ) -> None:
        try:
            while data := await source.read(_CHUNK):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                if is_reply and self._must_cut():
                    self.cut()
                    return
                if sink not in self._stranded and not self._swallows(is_reply=is_reply):
                    sink.write(data)
                    await sink.drain()
                    continue
                for request, seen in self._watched.items():
                    if data.startswith(request):
                        seen.set()
        except OSError:
            return
        finally:
            if sink not in self._stranded:
                self._writers.discard(sink)
                with suppress(Exception):
                    sink.close()

    def _must_cut(self) -> bool:
        self.replies += 1
        cut, self._cut_next_reply = self._cut_next_reply, False
        return cut

    def _swallows(self, *, is_reply: bool) -> bool:
        unwanted = Mode.DROP_REPLIES if is_reply else Mode.DROP_REQUESTS
        return self._mode in (unwanted, Mode.BLACKHOLE)
