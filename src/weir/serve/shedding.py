"""HTTP that turns pushes away before they become requests, when the application's load shedder says so."""

from __future__ import annotations

import re
from typing import Any

from weir.api.load_shedder import LoadShedder
from weir.api.wire import ADMITTED, PRINCIPAL
from weir.model.holders import STRANGERS
from weir.serve.protocol import LimitedProtocol

_SMALL = 1_048_576
"""A body that is not read by the application is read past here, up to this size."""


_PUSH_LINE = b"POST /api/v1/push HTTP/1.1\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,7})(?=\r\n)")
_CREDENTIAL = re.compile(rb"\r\nauthorization: *([^\r\n]*)", re.IGNORECASE)
_UNUSUAL = re.compile(rb"\r\n(?:transfer-encoding|expect|upgrade|connection(?!: *keep-alive\r\n))")


class SheddingProtocol(LimitedProtocol):
    """Asks the load shedder once the headers are there. The body of a push that is refused is skipped."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shedder: LoadShedder | None = getattr(self.app, "shedder", None)
        self._refusal: bytes | None = None

    @property
    def keeps_body(self) -> bool:
        return self._refusal is None

    def data_received(self, data: bytes) -> None:
        shedder = self._shedder
        if shedder is not None and shedder.shedding and self._refuse_unparsed(data, shedder):
            return
        super().data_received(data)

    def _refuse_unparsed(self, data: bytes, shedder: LoadShedder) -> bool:
        """Refuse a whole push that came in one piece, unparsed: while many are refused, that is most of the
        work. Anything else about it that is not plain goes the long way."""
        if not self.idle or not data.startswith(_PUSH_LINE):
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
        refusal = shedder.refusal("/api/v1/push", STRANGERS if known is None else known[0].holder)
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

    def _check(self, shedder: LoadShedder, route: str) -> bytes | None:
        """Admit the push, and say so in its scope; or the refusal."""
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
        """Answer without an application; the connection waits for the next request."""
        self.transport.write(refusal)
        self.server_state.total_requests += 1
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def _may_shed(self) -> bool:
        """The connection is free, and the whole body is on its way and small."""
        if not self._is_free() or self.expect_100_continue:
            return False
        length = next((value for name, value in self.headers if name == b"content-length"), b"")
        return length.isdigit() and len(length) < 8 and int(length) <= _SMALL

    def _is_free(self) -> bool:
        """Nothing is being answered on this connection."""
        return self.cycle is None or self.cycle.response_complete
