"""HTTP that turns pushes away before they become requests, when the application's door says so."""

from __future__ import annotations

from typing import Any

from weir.api.door import LET_IN, Door
from weir.serve.protocol import PatientProtocol

_SMALL = 1_048_576
"""A body that is not read by the application is read past here, up to this size."""


class SheddingProtocol(PatientProtocol):
    """Asks the door once the headers are there; the body of whoever is turned away is skipped, not kept."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._door: Door | None = getattr(self.app, "door", None)
        self._refusal: bytes | None = None

    def on_headers_complete(self) -> None:
        door = self._door
        route = door.route(self.parser.get_method(), self.url) if door is not None else None
        if door is not None and route is not None and self._may_shed():
            self._refusal = door.knock(route)
            if self._refusal is not None:
                self._in_headers = False
                self._header_bytes = 0
                return
            self.scope[LET_IN] = True  # type: ignore[literal-required]
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._refusal is None:
            super().on_message_complete()
            return
        refusal, self._refusal = self._refusal, None
        if self.transport.is_closing():
            return
        self.transport.write(refusal)
        self.server_state.total_requests += 1
        if self.parser.should_keep_alive():
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            self.transport.close()

    def _may_shed(self) -> bool:
        """Nothing is being answered on this connection, and the whole body is on its way and small."""
        if self.cycle is not None and not self.cycle.response_complete:
            return False
        if self.expect_100_continue:
            return False
        length = next((value for name, value in self.headers if name == b"content-length"), b"")
        return length.isdigit() and len(length) < 8 and int(length) <= _SMALL
