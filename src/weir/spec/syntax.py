"""The syntax tree: entries with their positions; the same for spec text, JSON and YAML."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """A position in the source: line and column count from 1, offsets from 0; the end is exclusive."""

    line: int
    column: int
    start: int
    end: int


NOWHERE = SourceSpan(1, 1, 0, 0)


class ValueKind(Enum):
    """How a value was written, in words for error messages."""

    WORD = "a word"
    STRING = "a text"
    NUMBER = "a number"
    DURATION = "a duration"
    FLAG = "true or false"
    SHARE = "a share"
    URL = "a URL"
    TYPE = "a type"
    PATH = "a command"
    EXPRESSION = "an expression"


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value: `text` is the source, `value` its meaning."""

    kind: ValueKind
    value: str | int | float | bool
    text: str
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Listing:
    items: tuple[Scalar, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Condition:
    """`backlog > 1000`."""

    metric: Scalar
    operator: str
    threshold: Scalar
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class JsonValue:
    """The payload of a schedule, with the mistakes in it and their positions."""

    value: Any
    span: SourceSpan
    mistakes: tuple[tuple[str, SourceSpan], ...] = ()


Value = Scalar | Listing | Condition | JsonValue


@dataclass(frozen=True, slots=True)
class SyntaxEntry:
    """A property, a block or both: `key label: value { body }`; only the key is always there."""

    key: str
    key_span: SourceSpan
    span: SourceSpan
    label: Scalar | None = None
    value: Value | None = None
    body: tuple[SyntaxEntry, ...] | None = None


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment that the formatter must keep."""

    text: str
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Document:
    """One source file: its name, its text, its app and its comments in order."""

    file: str
    text: str
    app: SyntaxEntry
    comments: tuple[Comment, ...] = ()
