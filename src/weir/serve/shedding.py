"""HTTP that turns pushes away before they become requests, when the application's door says so."""

from __future__ import annotations

import re
from typing import Any

from weir.api.door import LET_IN, Door
from weir.serve.protocol import LimitedProtocol

_SMALL = 1_048_576
"""A body that is not read by the application is read past here, up to this size."""


_PUSH_LINE = b"POST /api/v1/push HTTP/1.1\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,7})(?=\r\n)")
_UNUSUAL = re.compile(rb"\r\n(?:transfer-encoding|expect|upgrade|connection(?!: *keep-alive\r\n))")


class SheddingProtocol(LimitedProtocol):
    """Asks the door once the headers are there; the body of whoever is turned away is skipped, not kept."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._door: Door | None = getattr(self.app, "door", None)
        self._refusal: bytes | None = None

    @property
    def keeps_body(self) -> bool:
        return self._refusal is None

    def data_received(self, data: bytes) -> None:
        if self._door is not None and self._door.shedding and self._turned_away(data, self._door):
            return
        super().data_received(data)

    def _turned_away(self, data: bytes, door: Door) -> bool:
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
        refusal = door.refusal("/api/v1/push")
        if refusal is None:
            return False
        self._unset_keepalive_if_required()
        self._relax()
        self._answer_refused(refusal)
        return True

    def start_request(self) -> None:
        door = self._door
        route = door.route(self.parser.get_method(), self.url) if door is not None else None
        if door is not None and route is not None and self._may_shed():
            self._refusal = door.knock(route)
            if self._refusal is not None:
                return
            self.scope[LET_IN] = True  # type: ignore[literal-required]
        super().start_request()

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
