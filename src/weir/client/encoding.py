"""Values as JSON bytes, as requests carry them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form; send bytes, or a value of JSON")


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain).encode


def encode(value: Any) -> bytes:
    """A value as JSON. One without a JSON form, such as NaN, is refused before anything is sent."""
    return _encode(value).encode()
