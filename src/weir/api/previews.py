"""Payloads cut to what a list can show: the beginning of each part, and how much is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

MAX_WHOLE_BYTES = 1_024
"""A smaller payload is shown as it is."""
MAX_PARTS = 50
MAX_TEXT = 100
MAX_DEPTH = 8
CUT = "…"
_INT_BITS = 63
"""orjson writes no larger number by itself."""


def shown_json(payload: bytes) -> Any:
    """A payload as it stands in a JSON answer, exactly as it came if it is plain JSON; None if it is not
    JSON.

    What only some readers take for JSON is read and written again: half an emoji becomes `?`, NaN null.
    """
    try:
        orjson.loads(payload)
    except orjson.JSONDecodeError:
        pass
    else:
        return orjson.Fragment(payload)
    try:
        return _shown(json.loads(payload))
    except (ValueError, RecursionError):
        return None


def _shown(value: Any) -> Any:
    """A value that every JSON text can hold."""
    match value:
        case str():
            return shown_text(value)
        case Mapping():
            return {shown_text(name): _shown(member) for name, member in value.items()}
        case list():
            return [_shown(member) for member in value]
        case int() if value.bit_length() > _INT_BITS:
            return orjson.Fragment(str(value))
    return value


def shown_text(text: str) -> str:
    """A text without lone surrogates, which no encoding of JSON can carry."""
    return text.encode("utf-8", "replace").decode()


def preview_of(payload: bytes) -> Any:
    """The payload as JSON, or as text if it is not JSON; at most about 10,000 characters of a large one."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        value = payload[: 4 * MAX_TEXT].decode(errors="replace")
    return value if len(payload) <= MAX_WHOLE_BYTES and _is_shallow(value) else _Cutter().cut(value, 0)


def _is_shallow(value: Any, depth: int = 0) -> bool:
    """Whether the value can be shown whole; even a small one may have hundreds of levels, or half an
    emoji."""
    if depth > MAX_DEPTH or (isinstance(value, str) and value != shown_text(value)):
        return False
    if isinstance(value, Mapping) and any(name != shown_text(name) for name in value):
        return False
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return all(_is_shallow(member, depth + 1) for member in members)


class _Cutter:
    """Spends a budget of parts on a value, from its beginning on."""

    def __init__(self) -> None:
        self._left = MAX_PARTS

    def cut(self, value: Any, depth: int) -> Any:
        self._left -= 1
        match value:
            case str():
                return _cut_text(value)
            case int() if not isinstance(value, bool) and abs(value) >= 10**MAX_TEXT:
                return _cut_text(str(value))
            case Mapping():
                return self._cut_object(value, depth)
            case list():
                return self._cut_list(value, depth)
        return value

    def _cut_object(self, value: Mapping[str, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for place, (name, member) in enumerate(value.items()):
            if self._left <= 0 or depth >= MAX_DEPTH:
                shown[CUT] = _rest(len(value) - place)
                break
            shown[_cut_text(name)] = self.cut(member, depth + 1)
        return shown

    def _cut_list(self, value: list[Any], depth: int) -> list[Any]:
        shown: list[Any] = []
        for place, member in enumerate(value):
            if self._left <= 0 or depth >= MAX_DEPTH:
                shown.append(f"{CUT} {_rest(len(value) - place)}")
                break
            shown.append(self.cut(member, depth + 1))
        return shown


def _cut_text(text: str) -> str:
    return shown_text(text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + CUT)


def _rest(count: int) -> str:
    return f"and {count} more"
