"""The trace of a message: two headers by the W3C recommendation Trace Context, as they stand in it."""

from __future__ import annotations

import re
from collections.abc import Mapping

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
TRACE_HEADERS = frozenset((TRACEPARENT, TRACESTATE))
# Version, trace id, span id, flags. A later version may have more parts; all zeros are not an id.
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]*)?"
)
_TRACESTATE = re.compile(r"[ -~]{1,512}")


def trace_id_of(headers: Mapping[str, str]) -> str | None:
    """The trace that a message was made in; None if its headers name none that is valid."""
    text = headers.get(TRACEPARENT)
    if text is None:
        return None
    # Producers write headers, so any text may stand there.
    found = _TRACEPARENT.fullmatch(text)
    return found[1] if found else None


def trace_headers_of(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a message that carry its trace on; empty if it has none. They fit into HTTP."""
    if trace_id_of(headers) is None:
        return {}
    state = headers.get(TRACESTATE, "")
    more = {TRACESTATE: state} if _TRACESTATE.fullmatch(state) else {}
    return {TRACEPARENT: headers[TRACEPARENT], **more}
