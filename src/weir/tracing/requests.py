"""The trace of the HTTP request that is answered now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar

from weir.model.message import NO_HEADERS
from weir.model.trace_context import TRACE_HEADERS

REQUEST_TRACE: ContextVar[Mapping[str, str]] = ContextVar("weir_request_trace", default=NO_HEADERS)
"""The headers of the current request that carry its trace. Only a process that writes spans sets it."""
_NAMES = frozenset(name.encode() for name in TRACE_HEADERS)


def note_request_trace(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Remember the trace that a request belongs to, if its sender says so."""
    found = {name.decode(): value.decode("latin-1") for name, value in headers if name in _NAMES}
    if found:
        REQUEST_TRACE.set(found)
