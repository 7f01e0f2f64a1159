"""Refuses pushes before they reach the application, if admission would reject them.

The protocol asks the load shedder when the headers have arrived. A refusal costs a tenth of a call of the
application. An admitted push counts from that moment on, so that admission sees pushes that arrive together.
A sender is known by its token, and only if that was verified lately; everyone else is a stranger.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from weir.admission.kinds import OperationType
from weir.api.edge import Edge
from weir.api.problems import error_reply
from weir.api.services import Services
from weir.api.wire import ADMITTED, PRINCIPAL, Instruments
from weir.control.principals import Principal
from weir.errors import Overloaded
from weir.exchange.service import OperationService
from weir.model.holders import STRANGERS, Holder
from weir.model.ids import new_id
from weir.serve.protocol import LimitedProtocol
from weir.serve.stranger_turns import StrangerTurns

_SMALL = 1_048_576
"""A push with a larger body is not refused here, because this protocol would have to read the whole body."""
_PUSH_LINE = b"POST /api/v1/push HTTP/1.1\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,7})(?=\r\n)")
_CREDENTIAL = re.compile(rb"\r\nauthorization: *([^\r\n]*)", re.IGNORECASE)
_UNUSUAL = re.compile(rb"\r\n(?:transfer-encoding|expect|upgrade|connection(?!: *keep-alive\r\n))")
_PUSH = b"/api/v1/push"
_RAW_PREFIX, _RAW_SUFFIX = b"/api/v1/queues/", b"/messages"

_SAME_REFUSAL = 8
"""This many refusals in a row are equal but for the id of the request, because making one takes time."""
_ID = "00000000-0000-0000-0000-000000000000"


class LoadShedder:
    """Answers pushes that admission would reject, and counts pushes that are still arriving."""

    def __init__(self, services: Services, instruments: Instruments) -> None:
        self._services = services
        self._instruments = instruments
        self.shedding = False
        """Whether the last checked push was refused."""
        self._refusals_left = 0
        self._refused_with: Overloaded | None = None
        self._pieces: list[bytes] = []

    def route(self, method: bytes, target: bytes) -> str | None:
        """The route of a push; None for any other request, which is not checked here."""
        if method != b"POST":
            return None
        path = target.partition(b"?")[0]
        if path == _PUSH:
            return "/api/v1/push"
        raw = path.startswith(_RAW_PREFIX) and path.endswith(_RAW_SUFFIX)
        return "/api/v1/queues/{queue}/messages" if raw else None

    def recall(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[Principal, bool] | None:
        """The sender of these headers, if known without asking a store, and whether that is still valid."""
        # The last of several headers counts, as in the application.
        value = None
        for name, text in headers:
            if name == b"authorization":
                value = text
        return None if value is None else self.recall_credential(value)

    def recall_credential(self, value: bytes) -> tuple[Principal, bool] | None:
        """The same for the value of an `Authorization` header."""
        scheme, _, text = value.partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        return self._services.authenticator.recall(text.strip().decode("latin-1"))

    def check(self, route: str, holder: Holder) -> bytes | None:
        """Admit one push, which then counts as arriving, and return None; or return the refusing answer."""
        operations = self._services.operations
        if operations is None or operations.admission.let_in(OperationType.PUSH, holder):
            self.shedding = False
            return None
        self.shedding = True
        return self._refuse(operations, route)

    def refuse_if_full(self, route: str, holder: Holder) -> bytes | None:
        """Count and return the answer that refuses one push; None if there may be room: then `check` it."""
        operations = self._services.operations
        if operations is None or operations.admission.has_room(OperationType.PUSH, holder):
            return None
        return self._refuse(operations, route)

    def _refuse(self, operations: OperationService, route: str) -> bytes:
        self._instruments.observe(method="POST", route=route, status=429, took_s=0.0)
        if not self._refusals_left or self._refused_with is None:
            self._refusals_left = _SAME_REFUSAL
            self._refused_with = operations.overflow.refuse(times=_SAME_REFUSAL)
            self._pieces = _pieces(self._refused_with)
        self._refusals_left -= 1
        operations.tally.count_refusal(self._refused_with)
        return new_id().encode().join(self._pieces)


def _pieces(error: Overloaded) -> list[bytes]:
    """The bytes of a refusal, split where the id of the request belongs."""
    reply = error_reply(error, _ID)
    lines = [
        b"HTTP/1.1 429 Too Many Requests",
        b"content-type: " + reply.media_type,
        b"content-length: %d" % len(reply.body),
        b"request-id: " + _ID.encode(),
        *(name + b": " + value for name, value in reply.headers),
    ]
    return (b"\r\n".join(lines) + b"\r\n\r\n" + reply.body).split(_ID.encode())


def shedder_of(app: object) -> LoadShedder | None:
    """The load shedder of an application; None for one that is not Weir's API."""
    return LoadShedder(app.services, app.instruments) if isinstance(app, Edge) else None


class SheddingProtocol(LimitedProtocol):
    """Asks the load shedder once the headers have arrived. It skips the body of a refused push."""

    def __init__(
        self, *args: Any, shedder: LoadShedder | None, strangers: StrangerTurns, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._shedder = shedder
        self._strangers = strangers
        self._refusal: bytes | None = None
        self._refused = 0
        """Pushes of one read that were refused."""

    @property
    def keeps_body(self) -> bool:
        return self._refusal is None

    def data_received(self, data: bytes) -> None:
        shedder = self._shedder
        self._refused = 0
        if shedder is not None and shedder.shedding and self._refuse_unparsed(data, shedder):
            return
        super().data_received(data)

    def _refuse_unparsed(self, data: bytes, shedder: LoadShedder) -> bool:
        """Refuse a complete push that arrived in one read, without parsing it.

        While many pushes are refused, parsing would be most of the work. Pushes with unusual headers are
        parsed.
        """
        if not self.idle or self.flow.write_paused or not data.startswith(_PUSH_LINE):
            return False
        end = data.find(b"\r\n\r\n") + 2
        head = data[:end].lower()
        lengths = _LENGTH.findall(head)
        if len(lengths) != 1 or end + 2 + int(lengths[0]) != len(data) or _UNUSUAL.search(head):
            return False
        if end > self.limits.max_header_bytes or head.count(b"\r\n") > self.limits.max_headers:
            return False
        credentials = _CREDENTIAL.findall(data, 0, end)
        if len(credentials) > 1:
            return False
        known = shedder.recall_credential(credentials[0]) if credentials else None
        refusal = shedder.refuse_if_full("/api/v1/push", STRANGERS if known is None else known[0].holder)
        if refusal is None:
            return False
        self._unset_keepalive_if_required()
        self._relax()
        self._answer_refused(refusal)
        return True

    def start_request(self) -> None:
        shedder = self._shedder
        route = shedder.route(self.parser.get_method(), self.url) if shedder is not None else None
        if shedder is not None and route is not None and self._may_shed():
            self._refusal = self._check(shedder, route)
            if self._refusal is not None:
                return
        super().start_request()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        super()._start_asgi_task(cycle, app if self._is_known(cycle.scope) else self._in_turn(app))

    def _is_known(self, scope: Any) -> bool:
        """Whether the sender's token was verified lately. Notes the sender, if that is still valid."""
        if self._shedder is None or PRINCIPAL in scope:
            return True
        known = self._shedder.recall(scope["headers"])
        if known is not None and known[1]:
            scope[PRINCIPAL] = known[0]
        return known is not None

    def _in_turn(self, app: Any) -> Any:
        """The application, called when it is this stranger's turn."""

        async def wait(scope: Scope, receive: Receive, send: Send) -> None:
            await self._strangers.run(app(scope, receive, send))

        return wait

    def _check(self, shedder: LoadShedder, route: str) -> bytes | None:
        """Admit the push, note that in its scope and return None; or return the refusal."""
        known = shedder.recall(self.headers)
        holder = STRANGERS if known is None else known[0].holder
        refusal = shedder.check(route, holder)
        if refusal is None:
            self.scope[ADMITTED] = holder  # type: ignore[literal-required]
            if known is not None and known[1]:
                self.scope[PRINCIPAL] = known[0]  # type: ignore[literal-required]
        return refusal

    def on_body(self, body: bytes) -> None:
        if self._refusal is None:
            super().on_body(body)
        else:
            self._fed_body_bytes += len(body)

    def finish_request(self) -> None:
        if self._refusal is None:
            super().finish_request()
            return
        refusal, self._refusal = self._refusal, None
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._answer_refused(refusal)
        if not self.parser.should_keep_alive():
            self.transport.close()

    def _answer_refused(self, refusal: bytes) -> None:
        """Answer without the application; the connection then waits for the next request."""
        self._refused += 1
        self.transport.write(refusal)
        self.server_state.total_requests += 1
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def _may_shed(self) -> bool:
        """Whether the connection is free, and the body is small and arrives without being asked for.

        A client that sent many pushes ahead, or does not read, waits for its turn in the application.
        """
        if not self._is_free() or self.expect_100_continue:
            return False
        if self.flow.write_paused or self._refused >= self.limits.max_pipelined:
            return False
        length = next((value for name, value in self.headers if name == b"content-length"), b"")
        return length.isdigit() and len(length) < 8 and int(length) <= _SMALL

    def _is_free(self) -> bool:
        """Whether no request is being answered on this connection."""
        return self.cycle is None or self.cycle.response_complete
