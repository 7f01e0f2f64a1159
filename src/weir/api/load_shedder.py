"""Turns pushes away before they become requests, when admission would reject them.

The HTTP server asks when the headers have arrived. A refusal costs a tenth of what an application costs, and
those that are admitted count from then on, so that many which arrive together are seen together. Who sends a
push is known by its token alone, and only if that was verified lately; everyone else is a stranger.
"""

from __future__ import annotations

from collections.abc import Iterable

from weir.admission.kinds import OperationType
from weir.api.instruments import Instruments
from weir.api.problems import error_reply
from weir.api.services import Services
from weir.control.principals import Principal
from weir.errors import Overloaded
from weir.exchange.service import OperationService
from weir.model.holders import Holder
from weir.model.ids import new_id

_PUSH = b"/api/v1/push"
_RAW_PREFIX, _RAW_SUFFIX = b"/api/v1/queues/", b"/messages"

_SAME_REFUSAL = 8
"""So many in a row are told the same, but for the id of their request."""
_ID = "00000000-0000-0000-0000-000000000000"


class LoadShedder:
    """Answers pushes that would be rejected, and counts those that are on their way in."""

    def __init__(self, services: Services, instruments: Instruments) -> None:
        self._services = services
        self._instruments = instruments
        self.shedding = False
        """Whether the last push that was checked was turned away."""
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
        """Who sends these headers, if that is known without asking a store, and whether it holds for now."""
        # As in the application, the last one counts.
        value = None
        for name, text in headers:
            if name == b"authorization":
                value = text
        return None if value is None else self.recall_credential(value)

    def recall_credential(self, value: bytes) -> tuple[Principal, bool] | None:
        """The same for the value of the header alone."""
        scheme, _, text = value.partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        return self._services.authenticator.recall(text.strip().decode("latin-1"))

    def check(self, route: str, holder: Holder) -> bytes | None:
        """Admit one push (None), which counts as arriving from now on; or the answer that refuses it."""
        operations = self._services.operations
        if operations is None or operations.admission.let_in(OperationType.PUSH, holder):
            self.shedding = False
            return None
        self.shedding = True
        return self._refused(operations, route)

    def refusal(self, route: str, holder: Holder) -> bytes | None:
        """The whole answer that turns one push away; None if there may be room, and it should be checked."""
        operations = self._services.operations
        if operations is None or operations.admission.has_room(OperationType.PUSH, holder):
            return None
        return self._refused(operations, route)

    def begun(self, holder: Holder) -> None:
        """Count an admitted push as a request from now on."""
        if self._services.operations is not None:
            self._services.operations.admission.count_arrived(holder)

    def _refused(self, operations: OperationService, route: str) -> bytes:
        self._instruments.observe(method="POST", route=route, status=429, took_s=0.0)
        if not self._refusals_left or self._refused_with is None:
            self._refusals_left = _SAME_REFUSAL
            self._refused_with = operations.overflow.overloaded(refused=_SAME_REFUSAL)
            self._pieces = _pieces(self._refused_with)
        self._refusals_left -= 1
        operations.tally.count_refusal(self._refused_with)
        return new_id().encode().join(self._pieces)


def _pieces(error: Overloaded) -> list[bytes]:
    """The bytes of a refusal, in two pieces: the id of the request goes between them."""
    reply = error_reply(error, _ID)
    lines = [
        b"HTTP/1.1 429 Too Many Requests",
        b"content-type: " + reply.media_type,
        b"content-length: %d" % len(reply.body),
        b"request-id: " + _ID.encode(),
        *(name + b": " + value for name, value in reply.headers),
    ]
    return (b"\r\n".join(lines) + b"\r\n\r\n" + reply.body).split(_ID.encode())
