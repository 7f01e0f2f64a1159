"""What an endpoint of the hot path answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an endpoint answers."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media_type: bytes = b"application/json"

    @classmethod
    def json(cls, value: Any, *, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Reply:
        return cls(body=orjson.dumps(value), status=status, headers=headers)
