"""The headers that a webhook adds to the messages that it receives: which webhook, from where, and when."""

from __future__ import annotations

from collections.abc import Mapping

HOOK = "weir-hook"
SOURCE_IP = "weir-source-ip"
RECEIVED_AT = "weir-received-at-ms"
RECEIPT = frozenset((HOOK, SOURCE_IP, RECEIVED_AT))
# Milliseconds have 13 digits until the year 2286.
MAX_STAMP_DIGITS = 13


def receipt_of(headers: Mapping[str, str]) -> tuple[int | None, str | None]:
    """When a message was received, and by which webhook."""
    # Producers can write these headers too, so any text may stand there.
    stamp, hook = headers.get(RECEIVED_AT, ""), headers.get(HOOK)
    known = stamp.isascii() and stamp.isdigit() and len(stamp) <= MAX_STAMP_DIGITS
    return int(stamp) if known else None, None if hook is None else hook.replace("\x00", "\ufffd")


def sent_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers, without the ones that a webhook wrote."""
    return {name: value for name, value in headers.items() if name not in RECEIPT}
