"""Payloads keep their bytes: they are cut out of the request, never parsed and written again.

A JSON parser changes numbers (integers over 64 bit, `1.10`, `1E5`) and white space. So the body is
parsed once to check it, and each payload is then sliced out of the text at the position where it stands.
"""

from __future__ import annotations

import re
from json import JSONDecoder
from typing import Any

import orjson

from weir.errors import Malformed, TooLarge

Span = tuple[int, int]

_SKIP = re.compile(r"[ \t\n\r]*").match
_SCAN = JSONDecoder(parse_int=len, parse_float=len).raw_decode
"""Finds where a value ends; what it makes of numbers on the way does not matter."""


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


def item_slices(body: bytes, *, array: str, member: str) -> list[bytes | None]:
    """The raw bytes of one member of every object in a top-level array; None where it is absent.

    The body must be valid JSON of that shape; of members that stand twice the last one counts.
    """
    text = body.decode()
    try:
        spans = _spans(text, array, member)
    except RecursionError:
        raise TooLarge("the body nests too deep; flatten it") from None
    if body.isascii():
        return [None if span is None else body[span[0] : span[1]] for span in spans]
    return [None if span is None else text[span[0] : span[1]].encode() for span in spans]


def _spans(text: str, array: str, member: str) -> list[Span | None]:
    spans: list[Span | None] = []
    position = _inside(text, 0)
    while text[position] == '"':
        name, begin = _name(text, position)
        if name == array:
            spans, end = _array(text, begin, member)
        else:
            end = _SCAN(text, begin)[1]
        position = _next(text, end)
    return spans


def _array(text: str, start: int, member: str) -> tuple[list[Span | None], int]:
    """The spans of one member of each object of an array, and where the array ends."""
    spans: list[Span | None] = []
    position = _inside(text, start)
    while text[position] != "]":
        span, end = _object(text, position, member)
        spans.append(span)
        position = _next(text, end)
    return spans, position + 1


def _object(text: str, start: int, member: str) -> tuple[Span | None, int]:
    """The span of one member of an object, and where the object ends."""
    span = None
    position = _inside(text, start)
    while text[position] == '"':
        name, begin = _name(text, position)
        end = _SCAN(text, begin)[1]
        if name == member:
            span = (begin, end)
        position = _next(text, end)
    return span, position + 1


def _name(text: str, position: int) -> tuple[str, int]:
    """The name of the member that begins here, and where its value begins."""
    name, end = _SCAN(text, position)
    return name, _skip(text, _skip(text, end) + 1)


def _inside(text: str, position: int) -> int:
    """The first position of interest behind an opening bracket."""
    return _skip(text, _skip(text, position) + 1)


def _next(text: str, position: int) -> int:
    """The next member, element or closing bracket behind a value."""
    position = _skip(text, position)
    return _skip(text, position + 1) if text[position] == "," else position


def _skip(text: str, position: int) -> int:
    """The next position that is not white space."""
    if text[position] > " ":
        return position
    match = _SKIP(text, position)
    assert match is not None
    return match.end()
