"""The trace of a message: two headers in the form of the W3C recommendation Trace Context."""

from __future__ import annotations

import re
from collections.abc import Mapping

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
TRACE_HEADERS = frozenset((TRACEPARENT, TRACESTATE))
MESSAGING_SYSTEM = "weir"
"""What spans and metrics call Weir."""
MAX_LINKS = 128
"""The most links that a span keeps by default; the SDK drops further ones."""
# Version, trace id, span id, flags. A later version may have more parts; all zeros are not an id.
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]*)?"
)
_TRACESTATE = re.compile(r"[ -~]{1,512}")


def trace_id_of(headers: Mapping[str, str]) -> str | None:
    """The trace that a message was made in; None if its headers do not name a valid one."""
    text = headers.get(TRACEPARENT)
    if text is None:
        return None
    # Producers write headers, so any text may stand there.
    found = _TRACEPARENT.fullmatch(text)
    return found[1] if found else None


def trace_headers_of(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that carry the trace of a message on; empty if it has none. They are valid in HTTP."""
    if trace_id_of(headers) is None:
        return {}
    state = headers.get(TRACESTATE, "")
    more = {TRACESTATE: state} if _TRACESTATE.fullmatch(state) else {}
    return {TRACEPARENT: headers[TRACEPARENT], **more}
