"""The payload of a schedule: a JSON value that is stored with the schedule and pushed at each tick."""

from __future__ import annotations

import json
from typing import Any

from weir.errors import InvalidInput, TooLarge

MAX_BYTES = 64 << 10
"""Every revision of the spec holds the payload. Keep larger data elsewhere, and name it in the payload."""
MAX_DEPTH = 32


def payload_bytes(value: Any) -> bytes:
    """The payload as a message carries it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def check_payload(value: Any) -> None:
    """InvalidInput or TooLarge if a payload cannot be pushed."""
    if _depth(value) > MAX_DEPTH:
        raise InvalidInput(f"the payload is nested deeper than {MAX_DEPTH} levels; make it flatter")
    try:
        size = len(payload_bytes(value))
    except (ValueError, TypeError):
        raise InvalidInput(
            "the payload is not a JSON value; numbers must be finite and texts valid"
        ) from None
    if size > MAX_BYTES:
        raise TooLarge(
            f"the payload of a schedule has {size} bytes; at most {MAX_BYTES} are allowed, "
            "let the handler look the rest up"
        )


def _depth(value: Any) -> int:
    """How deep a value is nested, found level by level."""
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        inner = [part for one in level if isinstance(one, (dict, list)) for part in _parts(one)]
        depth, level = depth + 1, inner
    return depth


def _parts(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value)
