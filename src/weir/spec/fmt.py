"""Syntax tree to canonical text: two spaces, one item per line, with every comment. It is idempotent.

A block that was written on one line stays there if it fits. One blank line between items is kept, more are
not.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from weir.spec.json_text import json_lines, json_text
from weir.spec.parse import one_line
from weir.spec.syntax import (
    Comment,
    Condition,
    Document,
    JsonValue,
    Listing,
    Scalar,
    SyntaxEntry,
    Value,
    ValueKind,
)

WIDTH = 100
INDENT = "  "


def formatted(document: Document) -> str:
    """The text of a spec in its canonical form."""
    breaks = [offset for offset, char in enumerate(document.text) if char == "\n"]
    writer = _Writer(document, breaks=breaks)
    app = document.app
    writer.write_comments_before(app.key_span.start, depth=0)
    writer.write_blank_before(app.key_span.line)
    name = _value(app.label) if app.label else '""'
    if app.body or writer.comments_left(app.span.end):
        writer.write_line(0, f"app {name} {{", app.key_span.line)
        writer.write_body(app, 1)
        writer.write_line(0, "}", writer.end_line(app))
    else:
        writer.write_line(0, f"app {name} {{}}", app.key_span.line)
    writer.write_comments_before(len(document.text) + 1, depth=0)
    return "\n".join(writer.lines) + "\n"


@dataclass(slots=True)
class _Writer:
    document: Document
    lines: list[str] = field(default_factory=list)
    at: int = 0
    """The next comment to write."""
    last_line: int = 0
    """The source line of the last written item; it decides whether a blank line follows."""
    breaks: list[int] = field(default_factory=list)
    """The offsets of the line breaks in the source."""

    def write_line(self, depth: int, text: str, source_line: int) -> None:
        self.lines.append(INDENT * depth + text)
        self.last_line = source_line

    def write_blank_before(self, source_line: int) -> None:
        opened = self.lines and self.lines[-1].endswith("{")
        if self.lines and not opened and source_line > self.last_line + 1:
            self.lines.append("")

    def comments_left(self, end: int) -> bool:
        comments = self.document.comments
        return self.at < len(comments) and comments[self.at].span.start < end

    def write_comments_before(self, start: int, *, depth: int) -> None:
        """Write the comments up to an offset, each at the end of its line or on a line of its own."""
        while self.comments_left(start):
            comment = self.document.comments[self.at]
            self.at += 1
            if comment.span.line == self.last_line and self.lines and not _is_comment(self.lines[-1]):
                self.lines[-1] += f"  {comment.text}"
            else:
                self.write_blank_before(comment.span.line)
                self.write_line(depth, comment.text, comment.span.line)

    def write_body(self, entry: SyntaxEntry, depth: int) -> None:
        for item in entry.body or ():
            self.write_comments_before(item.key_span.start, depth=depth)
            self.write_item(item, depth)
        self.write_comments_before(entry.span.end, depth=depth)

    def write_item(self, item: SyntaxEntry, depth: int) -> None:
        self.write_blank_before(item.key_span.line)
        short = self.short(item, depth)
        if short is None:
            self.write_line(depth, _head(item) + " {", self.head_line(item))
            self.write_body(item, depth + 1)
            self.write_line(depth, "}", self.end_line(item))
            return
        # A comment inside an item that becomes one line moves above that line.
        for comment in self.take_inner_comments(item):
            self.write_line(depth, comment.text, item.key_span.line - 1)
        self.write_line(depth, short, self.end_line(item))

    def take_inner_comments(self, item: SyntaxEntry) -> list[Comment]:
        found = []
        while self.comments_left(item.span.end):
            found.append(self.document.comments[self.at])
            self.at += 1
        return found

    def head_line(self, item: SyntaxEntry) -> int:
        """The source line of the opening brace of a block."""
        end = item.value.span.end if item.value else item.label.span.end if item.label else item.key_span.end
        brace = self.document.text.find("{", end)
        return self.line_of(brace if brace >= 0 else end)

    def end_line(self, entry: SyntaxEntry) -> int:
        return self.line_of(entry.span.end - 1)

    def line_of(self, offset: int) -> int:
        return bisect_left(self.breaks, max(0, offset)) + 1

    def short(self, item: SyntaxEntry, depth: int) -> str | None:
        """The item on one line; None for a block that was longer or does not fit."""
        if item.body is None:
            return _payload(item, depth)
        if not item.body:
            return None if self.comments_left(item.span.end) else _head(item) + " {}"
        one_row = item.key_span.line == self.end_line(item)
        if not one_row or self.comments_left(item.span.end):
            return None
        parts = [_head(part) for part in item.body if part.body is None]
        text = f"{_head(item)} {{ {', '.join(parts)} }}"
        fits = len(INDENT * depth + text) <= WIDTH
        return text if fits and len(parts) == len(item.body) else None


def _head(item: SyntaxEntry) -> str:
    """The text of an item without its block."""
    label = f" {_value(item.label)}" if item.label else ""
    if item.value is None:
        return item.key + label
    command = "command " if isinstance(item.value, Scalar) and item.value.kind is ValueKind.PATH else ""
    return f"{item.key}{label}: {command}{_value(item.value)}"


def _payload(item: SyntaxEntry, depth: int) -> str:
    """A payload on one line, or on several if it does not fit."""
    text = _head(item)
    if len(INDENT * depth + text) <= WIDTH or not isinstance(item.value, JsonValue):
        return text
    return f"{item.key}: " + ("\n" + INDENT * depth).join(json_lines(item.value.value, INDENT))


def _value(value: Value) -> str:
    match value:
        case Scalar(kind=ValueKind.EXPRESSION):
            return one_line(value.text)
        case Scalar():
            return value.text
        case Listing():
            return f"[{', '.join(_value(item) for item in value.items)}]"
        case Condition():
            return f"{value.metric.text} {value.operator} {value.threshold.text}"
        case JsonValue():
            return json_text(value.value)


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("//")
