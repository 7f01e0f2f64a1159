"""HTTP with patience limits: headers must arrive in time and within bounds, which uvicorn leaves open."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weir.api.problems import MEDIA_TYPE, HeadersTooLarge, RequestTimeout, problem
from weir.errors import Malformed, WeirError

HEADER_TIMEOUT_S = 10.0
MAX_HEADER_BYTES = 65_536
_REASONS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


class PatientProtocol(HttpToolsProtocol):
    """Closes connections whose headers are too slow or too large. Costs nothing when they come at once."""

    header_timeout_s = HEADER_TIMEOUT_S
    max_header_bytes = MAX_HEADER_BYTES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_headers = True
        self._header_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch(0)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch(len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._relax()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._header_bytes = 0
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Malformed("the request is not valid HTTP"))

    def _watch(self, received: int) -> None:
        if not self._in_headers or self.transport.is_closing():
            self._relax()
            return
        self._header_bytes += received
        if self._header_bytes > self.max_header_bytes:
            self._refuse(HeadersTooLarge(f"the headers are over {self.max_header_bytes} bytes"))
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.header_timeout_s, self._too_slow)

    def _relax(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self._header_bytes:
            self._refuse(RequestTimeout(f"the headers did not arrive within {self.header_timeout_s:g} s"))
        else:
            self.transport.close()

    def _refuse(self, error: WeirError) -> None:
        """Answer without an application and hang up."""
        self._relax()
        if self.transport.is_closing():
            return
        body = orjson.dumps(problem(error))
        head = (
            f"HTTP/1.1 {error.status} {_REASONS[error.status]}\r\n"
            f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
