"""Reads JSON of clients and webhooks strictly."""

from __future__ import annotations

from typing import Any

import orjson

from weir.errors import Malformed


def parse_json(body: bytes) -> Any:
    """The value of a strict JSON text."""
    if not body:
        raise Malformed("the body is empty; send JSON")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the body is not valid JSON ({error})") from None
