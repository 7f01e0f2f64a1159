"""JSON to data that knows where each key stands, so that a mistake in a JSON spec has its line and column."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from typing import Any

from weir.spec.syntax import SourceSpan

MAX_NESTING = 100
"""Far deeper than any spec; it keeps recursion short."""
MAX_DIGITS = 20
"""Characters of a number. No property takes a longer one, and reading thousands of digits takes long."""
_SPACE = re.compile(r"[ \t\n\r]*")
_LITERAL = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None}


class Marked(dict[str, Any]):
    """An object that knows the source position of each key."""

    marks: dict[str, SourceSpan]


class Unreadable(Exception):
    """What is wrong, and where. Its callers turn it into SpecInvalid, so it is not in the error tree."""

    def __init__(self, message: str, span: SourceSpan) -> None:
        super().__init__(message)
        self.message = message
        self.span = span


def read_number(text: str) -> int | float:
    """The number that a text spells; infinity if it has so many digits that it is refused later."""
    if len(text) > MAX_DIGITS:
        return math.inf
    return float(text) if any(char in ".eE" for char in text) else int(text)


class JsonSource:
    """One JSON text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]

    def read(self) -> Any:
        """The value of the text; Unreadable if it is not JSON."""
        value, at = self._value(self._skip(0), 0)
        if (end := self._skip(at)) < len(self._text):
            raise self._wrong("there is more behind the end of the document", end)
        return value

    def span(self, start: int, end: int) -> SourceSpan:
        line = bisect_right(self._lines, start)
        return SourceSpan(line, start - self._lines[line - 1] + 1, start, end)

    def _wrong(self, message: str, at: int) -> Unreadable:
        return Unreadable(message, self.span(at, at + 1))

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return at if found is None else found.end()

    def _value(self, at: int, depth: int) -> tuple[Any, int]:
        opening = self._text[at : at + 1]
        if depth > MAX_NESTING:
            raise self._wrong("the document is nested too deeply", at)
        if opening == '"':
            return self._string(at)
        if opening == "{":
            return self._object(at, depth)
        if opening == "[":
            return self._array(at, depth)
        found = _LITERAL.match(self._text, at)
        if found is None:
            raise self._wrong(
                "expected a JSON value: a text, a number, `true`, `false`, `null`, `{` or `[`", at
            )
        word = found[0]
        return (_WORDS[word] if word in _WORDS else read_number(word)), found.end()

    def _string(self, at: int) -> tuple[str, int]:
        try:
            text, end = json.decoder.scanstring(self._text, at + 1, True)  # type: ignore[attr-defined]
        except json.JSONDecodeError as error:
            raise self._wrong(error.msg, error.pos) from None
        return text, end

    def _object(self, at: int, depth: int) -> tuple[Marked, int]:
        result = Marked()
        result.marks = {}
        at = self._skip(at + 1)
        while self._text[at : at + 1] != "}":
            if self._text[at : at + 1] != '"':
                raise self._wrong("expected a name in double quotes, or `}`", at)
            key, end = self._string(at)
            if key in result:
                raise self._wrong(f"`{key}` stands twice; keep one", at)
            result.marks[key] = self.span(at, end)
            at = self._skip(end)
            if self._text[at : at + 1] != ":":
                raise self._wrong("expected `:`", at)
            result[key], at = self._value(self._skip(at + 1), depth + 1)
            at = self._next(at, "}")
        return result, at + 1

    def _array(self, at: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        at = self._skip(at + 1)
        while self._text[at : at + 1] != "]":
            item, at = self._value(at, depth + 1)
            items.append(item)
            at = self._next(at, "]")
        return items, at + 1

    def _next(self, at: int, closing: str) -> int:
        """Behind the comma, at the next member or item; or at the closing bracket."""
        at = self._skip(at)
        if self._text[at : at + 1] == closing:
            return at
        if self._text[at : at + 1] != ",":
            raise self._wrong(f"expected `,` or `{closing}`", at)
        after = self._skip(at + 1)
        if self._text[after : after + 1] == closing:
            raise self._wrong("a comma stands before the end; remove it", at)
        return after
