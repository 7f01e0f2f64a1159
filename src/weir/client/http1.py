"""HTTP/1.1 as the client speaks it: the bytes of a request, and a reader of answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import httptools

MAX_HEAD_BYTES = 64 << 10
"""The most bytes of an answer's status line and headers together."""
MAX_ANSWER_BYTES = 16 << 20
"""The most bytes in the body of an answer that hands out no messages."""
_ILLEGAL = re.compile(r"[\r\n\0]")


class ConnectionFailed(Exception):
    """A connection gave no usable answer. The text says why, without the address."""

    def __init__(self, why: str, *, stale: bool = False) -> None:
        super().__init__(why)
        self.stale = stale
        """The connection had served before and ended before the first byte of this answer: the server
        most likely closed it while it was idle."""


class RequestKind(Enum):
    """What a request is for. On an event loop each kind has places of its own, so none waits for another."""

    ORDINARY = "ordinary"
    POLL = "poll"
    """It waits for messages, or for the end of one, for as long as its caller said."""
    LEASE = "lease"
    """It settles messages or renews their leases. If it came late, they would run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request. The connections add the headers that every request has."""

    method: str
    path: str
    content: bytes | None = None
    most_bytes: int = MAX_ANSWER_BYTES
    """The answer is refused if its body is longer."""
    kind: RequestKind = RequestKind.ORDINARY
    meanwhile: Callable[[], None] | None = None
    """Work to do while the answer is on its way. Some connections never call it."""
    if_match: str | None = None
    """The revision that a change was made from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """A whole answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connections(Protocol):
    """Sends requests and gets answers, over connections that it keeps."""

    async def exchange(self, base_url: str, request: HttpRequest, *, timeout_s: float) -> HttpAnswer:
        """The answer of any status; ConnectionFailed if there is none in time."""

    async def sleep(self, seconds: float) -> None:
        """Pause between two tries."""

    async def aclose(self) -> None:
        """Close what is open."""


def head_of(headers: Mapping[str, str]) -> bytes:
    """Headers as the bytes of a request; ValueError if a header has a line break."""
    for name, value in headers.items():
        if _ILLEGAL.search(value):
            raise ValueError(f"the header `{name}` would hold a line break; take it out of the option")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")


def request_bytes(request: HttpRequest, *, prefix: str, head: bytes) -> bytes:
    """A request as bytes; `prefix` is the path of the base URL, `head` the headers that every request has."""
    line = f"{request.method} {prefix}{request.path} HTTP/1.1\r\n".encode("ascii")
    content = request.content
    if request.if_match is not None:
        head += f'if-match: "{request.if_match}"\r\n'.encode("ascii")
    if content is None:
        length = b"\r\n" if request.method == "GET" else b"content-length: 0\r\n\r\n"
        return line + head + length
    kind = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(content)
    return b"".join((line, head, kind, content))


class AnswerReader:
    """Reads one answer from the bytes of a connection, and skips interim answers (1xx)."""

    __slots__ = (
        "_body", "_done", "_head_bytes", "_headers", "_keeps_alive", "_most_bytes", "_parser", "_size",
        "_status", "_surplus",
    )  # fmt: skip

    def __init__(self, *, most_bytes: int) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._most_bytes = most_bytes
        self._head_bytes = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._size = 0
        self._status = 0
        self._done = False
        self._keeps_alive = False
        self._surplus = False

    @property
    def started(self) -> bool:
        """Whether anything arrived."""
        return self._head_bytes > 0

    @property
    def leaves_connection_usable(self) -> bool:
        """Whether the connection may carry another request after this answer."""
        return self._keeps_alive and not self._surplus

    def feed(self, data: bytes) -> HttpAnswer | None:
        """Take bytes; returns the answer if they complete it."""
        if not self._status:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise ConnectionFailed("the server wants to speak another protocol") from None
        except httptools.HttpParserError as error:
            if not self._done:
                raise ConnectionFailed(f"the answer is not HTTP ({error})") from None
            self._surplus = True
        self._check_size()
        return self._answer() if self._done else None

    def end(self) -> HttpAnswer:
        """Note that the server closed the connection. That completes an answer without a stated length."""
        names = {name.lower() for name, _ in self._headers}
        if not self._status or {b"content-length", b"transfer-encoding"} & names:
            raise ConnectionFailed("the server closed the connection before its answer was complete")
        return self._answer()

    def _check_size(self) -> None:
        if not self._status and self._head_bytes > MAX_HEAD_BYTES:
            raise ConnectionFailed(f"the headers of the answer are over {MAX_HEAD_BYTES} bytes")
        if self._size > self._most_bytes:
            raise ConnectionFailed(f"the answer is over {self._most_bytes} bytes")

    def _answer(self) -> HttpAnswer:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        # The client reads the headers of refusals only.
        headers = {} if 200 <= self._status < 300 else _decoded(self._headers)
        return HttpAnswer(status=self._status, headers=headers, body=body)

    # The parser calls the methods below.

    def on_message_begin(self) -> None:
        self._surplus = self._done

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._done:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if not self._done and status >= 200:
            self._status = status

    def on_body(self, data: bytes) -> None:
        if not self._done:
            self._size += len(data)
            self._body.append(data)

    def on_message_complete(self) -> None:
        if self._status:
            self._done = True
            # Asked here, because the parser forgets it after this call.
            self._keeps_alive = bool(self._parser.should_keep_alive())
        else:
            self._headers.clear()


def _decoded(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
