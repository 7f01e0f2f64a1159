"""Payloads keep their bytes: they are cut out of the request, never parsed and written again.

A JSON parser changes numbers (integers over 64 bit, `1.10`, `1E5`) and white space. So orjson parses the
body to check it, which msgspec does not do as strictly, and msgspec cuts each payload out where it stands.
"""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from weir.errors import Malformed, TooLarge


def parse_json(body: bytes) -> Any:
    """The value of a strict JSON text."""
    if not body:
        raise Malformed("the body is empty; send JSON")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the body is not valid JSON ({error})") from None


def check_depth(value: Any, limit: int) -> None:
    """Refuse values that nest deeper than `limit` levels."""
    layer = [value] if isinstance(value, dict | list) else []
    depth = 0
    while layer:
        depth += 1
        if depth > limit:
            raise TooLarge(f"a payload nests deeper than {limit} levels; flatten it")
        layer = [
            child
            for parent in layer
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]


class _Item(msgspec.Struct):
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Push(msgspec.Struct):
    items: list[_Item]


_decode = msgspec.json.Decoder(_Push).decode


def cut_payloads(body: bytes) -> list[bytes | None]:
    """The raw payload of every item of a push, as it stands in the body; None where it is absent.

    The body must be valid JSON of that shape; of members that stand twice the last one counts.
    """
    try:
        items = _decode(body).items
    except RecursionError:
        raise TooLarge("the body nests too deep; flatten it") from None
    return [None if item.payload is msgspec.UNSET else bytes(item.payload) for item in items]
