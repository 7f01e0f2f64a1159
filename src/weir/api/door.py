"""The door of the hot path: pushes that would be rejected are answered here, before there is a request.

Whoever speaks HTTP asks when the headers have arrived. A refusal costs a tenth of what an application
costs, and those that are let in count from then on, so that many which arrive together are seen together.
"""

from __future__ import annotations

from weir.admission.kinds import OperationType
from weir.api.instruments import Instruments
from weir.api.problems import error_reply
from weir.api.services import Services
from weir.model.ids import new_id

LET_IN = "weir.let_in"
"""Marks the scope of a request that is counted as arriving."""
_PUSH = b"/api/v1/push"
_RAW_PREFIX, _RAW_SUFFIX = b"/api/v1/queues/", b"/messages"


class Door:
    """Answers for whom there is no room, and counts who is on the way in."""

    def __init__(self, services: Services, instruments: Instruments) -> None:
        self._services = services
        self._instruments = instruments

    def route(self, method: bytes, target: bytes) -> str | None:
        """The route of a push; None if it is something else, which is not asked here."""
        path = target.partition(b"?")[0]
        if method != b"POST":
            return None
        if path == _PUSH:
            return "/api/v1/push"
        raw = path.startswith(_RAW_PREFIX) and path.endswith(_RAW_SUFFIX)
        return "/api/v1/queues/{queue}/messages" if raw else None

    def knock(self, route: str) -> bytes | None:
        """Let one push in (None), or the whole answer that turns it away."""
        operations = self._services.operations
        if operations is None or operations.admission.let_in(OperationType.PUSH):
            return None
        reply = error_reply(operations.intake.overloaded(), request_id := new_id())
        self._instruments.observe(method="POST", route=route, status=reply.status, took_s=0.0)
        lines = [
            b"HTTP/1.1 429 Too Many Requests",
            b"content-type: " + reply.media_type,
            b"content-length: %d" % len(reply.body),
            b"request-id: " + request_id.encode(),
            *(name + b": " + value for name, value in reply.headers),
        ]
        return b"\r\n".join(lines) + b"\r\n\r\n" + reply.body

    def entered(self) -> None:
        """One that was let in has begun."""
        if self._services.operations is not None:
            self._services.operations.admission.arriving -= 1
