"""HTTP with limits of size and time for all parts of a request but its body. uvicorn has no such limits.

The bytes of a read are counted after they are parsed. A request that arrives in one read, as nearly all do,
costs only a few comparisons here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from enum import IntEnum
from typing import Any

import httptools
import orjson
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from weir.api.limits import Limits
from weir.api.problems import MEDIA_TYPE, HeadersTooLarge, TargetTooLong, problem_headers
from weir.api.wire import ARRIVAL, ENDED_BY
from weir.errors import Malformed, WeirError
from weir.model.holders import Holder
from weir.model.ids import new_id
from weir.model.problem_documents import problem
from weir.serve.forwarded import TrustedProxies
from weir.serve.transport import PoliteTransport
from weir.serve.unfinished import UnfinishedRequests, client_of

SLICE_BYTES = 16_384
"""A longer read is parsed in slices of this size, so that its bytes are counted between slices."""
CHUNK_BYTES = 16
"""Bytes that each chunk may add to its content: a size of 8 digits and two line ends take 12."""
LINE_BYTES = 4
"""Colon, space and line end of a header."""
_HEAD_LINE = b"%s %s HTTP/%s\r\n"


class Phase(IntEnum):
    """What a connection is receiving."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    """The body and its trailers."""
    ENDED = 3
    """Further bytes are not parsed."""


class LimitedProtocol(HttpToolsProtocol):
    """Ends requests that are too slow or too large, before and after they were answered."""

    def __init__(
        self,
        *args: Any,
        limits: Limits,
        unfinished: UnfinishedRequests,
        proxies: TrustedProxies | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.limits = limits
        self._proxies = proxies
        """The trusted proxies; None if the peer of this connection is not one of them."""
        self.client_key: Hashable = None
        self._address: Hashable = None
        self.verified = False
        self.bytes_held = 0
        self._unfinished = unfinished
        self._phase = Phase.IDLE
        self._watched_phase: Phase | None = None
        """The phase of the request when it was last added to the unfinished ones."""
        self._running: RequestResponseCycle | None = None
        """The request that is being answered. With pipelining, `cycle` is the request that arrives."""
        self._framing_bytes = 0
        """Bytes of the head that arrived; in the body, bytes other than its content."""
        self._trailer_bytes = self._trailers = self._chunks = 0
        self._fed_body_bytes = 0
        self._completed = False
        """Whether this read completed a request."""
        self._large = False
        """Whether the head may be over the limit with this read."""
        self._keep_alive = True
        self._upgrade_offered = False
        """Whether the parser just ended a request at its head, because it offers another protocol."""
        self._violation: WeirError | None = None

    @property
    def in_body(self) -> bool:
        return self._phase is Phase.BODY

    @property
    def ended(self) -> bool:
        return self._phase is Phase.ENDED

    @property
    def paused(self) -> bool:
        return self.flow.read_paused

    @property
    def keeps_body(self) -> bool:
        """Whether the arriving body is kept in memory."""
        return True

    @property
    def idle(self) -> bool:
        """Nothing is arriving, and nothing is being answered."""
        return self._phase is Phase.IDLE and (self._running is None or self._running.response_complete)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._outlet = PoliteTransport(
            transport, unfinished=self._is_unfinished, send_timeout_s=self.limits.send_timeout_s
        )
        super().connection_made(self._outlet)  # type: ignore[arg-type]
        self.client_key = self._address = client_of(self.client[0]) if self.client else None
        if self._proxies is not None and not (self.client and self._proxies.trust(self.client[0])):
            self._proxies = None
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unfinished.discard(self)
        self._outlet.end()
        if self._running is not None and self._running is not self.cycle:
            # uvicorn tells only the last request that its client is gone.
            self._running.disconnected = True
            self._running.message_event.set()
        self._phase = Phase.ENDED
        super().connection_lost(exc)
        self._let_go()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._outlet.watch_sending()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._outlet.stop_watching()

    def shutdown(self) -> None:
        self._keep_alive = False
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        if len(data) <= SLICE_BYTES or self._is_plain_body():
            self._read(data)
            return
        for start in range(0, len(data), SLICE_BYTES):
            self._read(data[start : start + SLICE_BYTES])

    def _is_plain_body(self) -> bool:
        """Whether a body of known length is arriving, without chunks and trailers."""
        return self._phase is Phase.BODY and all(name != b"transfer-encoding" for name, _ in self.headers)

    def _read(self, data: bytes) -> None:
        if self.ended:
            self._outlet.skip(len(data))
            return
        self._fed_body_bytes = 0
        self._completed = False
        self._large = self._framing_bytes + len(data) > self.limits.max_header_bytes
        self._parse(data)
        if self._phase is Phase.IDLE and self._completed:
            self._relax()
        elif not self.ended:
            self._count(len(data))

    def _parse(self, data: bytes) -> None:
        """uvicorn's `data_received`, but for requests that offer another protocol."""
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.send_400_response("")

    def _feed(self, data: bytes) -> None:
        """Parse. A request that offers another protocol, as Java's clients offer HTTP/2, goes on in HTTP/1.1.

        The parser would leave the body of such a request to the other protocol. So another parser gets the
        same head without the offer, and then the rest.
        """
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as end:
                if not self._upgrade_offered:
                    # CONNECT: what follows is not HTTP, and the connection ends with the answer.
                    return
                data = data[end.args[0] :]
                self._upgrade_offered = False
                head = self._head_without_offer()
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self.parser.feed_data(head)

    def _head_without_offer(self) -> bytes:
        line = _HEAD_LINE % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        kept = (b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade")
        return b"".join((line, *kept, b"\r\n"))

    def on_message_begin(self) -> None:
        self._phase = Phase.HEAD
        self.client_key, self.verified = self._address, False
        super().on_message_begin()
        self.scope[ARRIVAL] = self  # type: ignore[literal-required]

    def belongs_to(self, holder: Holder) -> None:
        self.client_key, self.verified = holder, True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase is Phase.BODY:
            self._on_trailer(name, value)
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._check_head()
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._upgrade_offered = True
            return
        self._phase = Phase.BODY
        if self._proxies is not None:
            self._believe(self._proxies)
        self.start_request()

    def _believe(self, proxies: TrustedProxies) -> None:
        """Take the client's address and scheme from the headers of a trusted proxy."""
        host, scheme = proxies.client(self.headers), proxies.scheme(self.headers)
        if host is not None:
            # The port of the client is not in the headers.
            self.scope["client"] = (host, 0)
            self.client_key = client_of(host)
        if scheme is not None:
            self.scope["scheme"] = scheme

    def start_request(self) -> None:
        """Pass the request to the application. Until its body is complete, an answer ends the connection."""
        super().on_headers_complete()
        self._keep_alive = self.cycle.keep_alive and not self.parser.should_upgrade()
        self.cycle.keep_alive = False

    def on_chunk_header(self) -> None:
        self._chunks += 1

    def on_body(self, body: bytes) -> None:
        self._fed_body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._upgrade_offered:
            return
        self._phase = Phase.IDLE
        self._completed = True
        self._framing_bytes = self._trailer_bytes = self._trailers = self._chunks = 0
        self.finish_request()

    def finish_request(self) -> None:
        """Tell the application that the body is complete, and allow keep-alive if no answer has begun."""
        super().on_message_complete()
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keep_alive

    def _let_go(self) -> None:
        """Break the reference cycles of a lost connection; the application holds the objects that it needs.

        The garbage collector runs so seldom (`calm_collector`) that each closed connection would cost 6 KB
        until then: 76 MiB after 13,000 connections.
        """
        self.pipeline.clear()
        self.scope = None  # type: ignore[assignment]
        self.cycle = self._running = None  # type: ignore[assignment]

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, self._once_read(app, cycle) if self.flow.write_paused else app)

    def _once_read(self, app: Any, cycle: RequestResponseCycle) -> Any:
        """The application, called when the client has read earlier answers: unread ones are not made."""

        async def wait(scope: Scope, receive: Receive, send: Send) -> None:
            await self.flow.drain()
            if not cycle.disconnected:
                await app(scope, receive, send)

        return wait

    def send_400_response(self, msg: str) -> None:
        violation, self._violation = self._violation, None
        self.refuse(violation or Malformed("the request is not valid HTTP"))

    def refuse(self, error: WeirError) -> None:
        """Answer without the application, unless another request is being answered, and hang up."""
        phase, sent = self._phase, self._framing_bytes
        self._end_reading()
        if self.transport.is_closing():
            return
        if self._answers_others(phase):
            self._last_cycle().keep_alive = False
        elif phase is Phase.IDLE and not sent:
            self._outlet.abort()
        elif self._leave_application(error, phase):
            self.transport.write(_answer(error))
            self.transport.close()

    def _answers_others(self, phase: Phase) -> bool:
        """Whether earlier requests are still being answered. If this one waits behind them, it is dropped."""
        running = self._running
        if phase is Phase.BODY and self.pipeline and self.pipeline[0][0] is self.cycle:
            self.pipeline.popleft()
            return True
        own = phase is Phase.BODY and running is self.cycle
        return running is not None and not running.response_complete and not own

    def _last_cycle(self) -> RequestResponseCycle:
        """The last request that will be answered; the connection ends with it."""
        assert self._running is not None
        return self.pipeline[0][0] if self.pipeline else self._running

    def _leave_application(self, error: WeirError, phase: Phase) -> bool:
        """Tell the application that its client is gone; False if the answer has begun, and is cut off."""
        cycle = self._running
        if phase is not Phase.BODY or cycle is None or cycle.response_complete:
            return True
        if cycle.response_started:
            self._outlet.abort()
            return False
        self.scope[ENDED_BY] = error  # type: ignore[literal-required]
        cycle.disconnected = True
        cycle.message_event.set()
        return True

    def _end_reading(self) -> None:
        """From now on nothing is parsed."""
        self._relax()
        self._unset_keepalive_if_required()
        self._phase = Phase.ENDED

    def _is_unfinished(self) -> bool:
        """Whether the client may still be sending a request. Called before closing; it ends the reading."""
        unfinished = self._phase is not Phase.IDLE
        self._end_reading()
        return unfinished

    def _count(self, size: int) -> None:
        """Count the bytes of a read for the request that is still unfinished after it."""
        begins_body = self.in_body and self._watched_phase is not Phase.BODY
        if self._completed:
            # Nobody knows where in the read this request began, so count what was parsed of it.
            self._framing_bytes = 0 if self.in_body else self._head_bytes()
        else:
            self._framing_bytes += size - self._fed_body_bytes
            self._framing_bytes -= self._head_bytes() if begins_body else 0
        if self._framing_bytes > self.limits.max_header_bytes + CHUNK_BYTES * self._chunks:
            self.refuse(self._too_large())
            return
        self._watch()
        if self.keeps_body:
            self._unfinished.hold(self, self._fed_body_bytes if self.in_body else size)

    def _watch(self) -> None:
        if self._watched_phase is not self._phase:
            self._watched_phase = self._phase
            self._unfinished.add(self)

    def _relax(self) -> None:
        if self._watched_phase is not None:
            self._watched_phase = None
            self._unfinished.discard(self)

    def _check_head(self) -> None:
        limits = self.limits
        if len(self.url) > limits.max_target_bytes:
            self._stop(TargetTooLong(f"the request target is over {limits.max_target_bytes} bytes"))
        if len(self.headers) > limits.max_headers:
            self._stop(HeadersTooLarge(f"there are over {limits.max_headers} headers; send fewer"))
        if self._large and self._head_bytes() > limits.max_header_bytes:
            self._stop(self._too_large())
        if len(self.pipeline) >= limits.max_pipelined:
            self._stop(Malformed("too many requests were sent ahead on this connection"))

    def _on_trailer(self, name: bytes, value: bytes) -> None:
        """Count a trailer and drop it, because nothing reads trailers."""
        self._trailers += 1
        self._trailer_bytes += len(name) + len(value) + LINE_BYTES
        if self._trailer_bytes > self.limits.max_header_bytes or self._trailers > self.limits.max_headers:
            self._stop(self._too_large())

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + LINE_BYTES for name, value in self.headers)

    def _too_large(self) -> HeadersTooLarge:
        part = "trailers and chunk extensions" if self._phase is Phase.BODY else "headers"
        return HeadersTooLarge(f"the {part} are over {self.limits.max_header_bytes} bytes")

    def _stop(self, error: WeirError) -> None:
        """End the parsing of this read. uvicorn then calls `send_400_response`."""
        self._violation = error
        raise _StopParsing


class _StopParsing(Exception):
    """Ends the parser from within one of its callbacks."""


def _answer(error: WeirError) -> bytes:
    request_id = new_id()
    body = orjson.dumps(problem(error, instance=request_id))
    headers = {
        "content-type": MEDIA_TYPE,
        "content-length": str(len(body)),
        "request-id": request_id,
        **problem_headers(error),
        "connection": "close",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return STATUS_LINE[error.status] + lines.encode() + b"\r\n" + body
