"""JSON values as spec text: keys that are words need no quotes, and short objects stand on one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# The words of the grammar, and the characters that a quoted text must escape.
_WORD = re.compile(r"[^\W\d][\w-]*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def json_text(value: Any) -> str:
    """The value on one line."""
    match value:
        case Mapping():
            members = ", ".join(f"{_key(name)}: {json_text(part)}" for name, part in value.items())
            return f"{{ {members} }}" if members else "{}"
        case list():
            return f"[{', '.join(json_text(part) for part in value)}]"
        case str():
            return _quoted(value)
        case bool():
            return str(value).lower()
        case None:
            return "null"
    return str(value)


def json_lines(value: Any, indent: str) -> list[str]:
    """The value on several lines: one member or item on each; short inner values stay on one line."""
    match value:
        case Mapping() if value:
            parts = [(f"{_key(name)}: ", part) for name, part in value.items()]
            return _bracketed("{", parts, "}", indent)
        case list() if value:
            return _bracketed("[", [("", part) for part in value], "]", indent)
    return [json_text(value)]


def _bracketed(opening: str, parts: list[tuple[str, Any]], closing: str, indent: str) -> list[str]:
    lines = [opening]
    for head, part in parts:
        inner = [json_text(part)] if len(json_text(part)) <= _SHORT else json_lines(part, indent)
        lines += [indent + head + inner[0], *(indent + line for line in inner[1:])]
    return [*lines, closing]


_SHORT = 60
"""Characters of an inner value that stands on one line."""


def _key(name: str) -> str:
    return name if _WORD.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    return (
        '"' + "".join(_ESCAPES.get(char, char if char.isprintable() else _code(char)) for char in text) + '"'
    )


def _code(char: str) -> str:
    """The escape of a character that does not print; above U+FFFF there is none, and the character stays."""
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else char
