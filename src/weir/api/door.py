"""The door of the hot path: pushes that would be rejected are answered here, before there is a request.

Whoever speaks HTTP asks when the headers have arrived. A refusal costs a tenth of what an application
costs, and those that are let in count from then on, so that many which arrive together are seen together.
"""

from __future__ import annotations

from weir.admission.kinds import OperationType
from weir.api.instruments import Instruments
from weir.api.problems import error_reply
from weir.api.services import Services
from weir.errors import Overloaded
from weir.model.ids import new_id
from weir.operations.service import OperationService

LET_IN = "weir.let_in"
"""Marks the scope of a request that is counted as arriving."""
_PUSH = b"/api/v1/push"
_RAW_PREFIX, _RAW_SUFFIX = b"/api/v1/queues/", b"/messages"

_SAME_REFUSAL = 8
"""So many in a row are told the same, but for the id of their request."""
_ID = "00000000-0000-0000-0000-000000000000"


class Door:
    """Answers for whom there is no room, and counts who is on the way in."""

    def __init__(self, services: Services, instruments: Instruments) -> None:
        self._services = services
        self._instruments = instruments
        self.shedding = False
        """Whether the last that knocked was turned away."""
        self._refusals_left = 0
        self._refused_with: Overloaded | None = None
        self._pieces: list[bytes] = []

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
            self.shedding = False
            return None
        self.shedding = True
        return self._refused(operations, route)

    def refusal(self, route: str) -> bytes | None:
        """The whole answer that turns one push away; None if there may be room, and it should knock."""
        operations = self._services.operations
        if operations is None or operations.admission.has_room(OperationType.PUSH):
            return None
        return self._refused(operations, route)

    def _refused(self, operations: OperationService, route: str) -> bytes:
        self._instruments.observe(method="POST", route=route, status=429, took_s=0.0)
        if not self._refusals_left or self._refused_with is None:
            self._refusals_left = _SAME_REFUSAL
            self._refused_with = operations.intake.overloaded(refused=_SAME_REFUSAL)
            self._pieces = _pieces(self._refused_with)
        self._refusals_left -= 1
        operations.tally.turned_away(self._refused_with)
        return new_id().encode().join(self._pieces)

    def entered(self) -> None:
        """One that was let in has begun."""
        if self._services.operations is not None:
            self._services.operations.admission.arriving -= 1


def _pieces(error: Overloaded) -> list[bytes]:
    """A refusal as it goes out, cut where the id of the request stands."""
    reply = error_reply(error, _ID)
    lines = [
        b"HTTP/1.1 429 Too Many Requests",
        b"content-type: " + reply.media_type,
        b"content-length: %d" % len(reply.body),
        b"request-id: " + _ID.encode(),
        *(name + b": " + value for name, value in reply.headers),
    ]
    return (b"\r\n".join(lines) + b"\r\n\r\n" + reply.body).split(_ID.encode())
