"""Parses enough of ClickHouse's grammar to tell statements apart and to separate an insert from its rows."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    rb"""(?P<skip>\s+|--[^\n]*(?:\n|$)|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`\\]|\\.|``)*`)"""
    rb"""|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<other>.)""",
    re.DOTALL,
)
# The rows begin after the line end that follows the name of the format.
_LINE_END = re.compile(rb"[ \t\r]*\n?")
_ROWS_INLINE = (b"VALUES", b"SELECT", b"WITH", b"FROM")
_READING = (b"SELECT", b"WITH", b"SHOW", b"DESCRIBE", b"DESC", b"EXISTS", b"EXPLAIN", b"CHECK", b"VALUES")


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """`INSERT INTO … [SETTINGS …] FORMAT x` whose rows follow from `data_at` on."""

    head: str
    settings: str
    format: str
    data_at: int


def words(text: bytes, count: int) -> tuple[bytes, ...]:
    """The first `count` words of a statement in capitals, without comments and brackets."""
    found: list[bytes] = []
    for token in _TOKEN.finditer(text):
        if token["word"] is not None:
            found.append(token["word"].upper())
        elif token["other"] is not None and token["other"] != b"(":
            break
        if len(found) == count:
            break
    return tuple(found)


def reads(text: bytes) -> bool:
    """Whether a statement returns rows."""
    return words(text, 1)[:1] != () and words(text, 1)[0] in _READING


def named_formats(text: bytes) -> frozenset[str]:
    """Every word that may name an output format, because it follows a `FORMAT` outside of brackets."""
    if b"FORMAT" not in text.upper():
        return frozenset()
    found: set[str] = set()
    depth, named = 0, False
    for token in _TOKEN.finditer(text):
        if (word := token["word"]) is not None:
            if named:
                found.add(word.decode())
            named = depth == 0 and word.upper() == b"FORMAT"
        elif (other := token["other"]) is not None:
            depth += (other == b"(") - (other == b")")
            named = False
    return frozenset(found)


def keeps_state(text: bytes) -> bool:
    """Whether a statement leaves state behind in its session."""
    first = words(text, 2)
    return first[:1] in ((b"SET",), (b"USE",)) or first == (b"CREATE", b"TEMPORARY")


def find_insert(text: bytes) -> Insert | None:
    """An insert whose rows are in the body, cut into its parts; None for any other statement."""
    depth, started = 0, False
    format_at: int | None = None
    settings_at: int | None = None
    for token in _TOKEN.finditer(text):
        if token["skip"] is not None:
            continue
        if token["other"] is not None:
            if not started:
                return None
            depth += (token["other"] == b"(") - (token["other"] == b")")
            continue
        word = token["word"].upper()
        if not started:
            if word != b"INSERT":
                return None
            started = True
        elif format_at is not None:
            return _cut(text, settings_at=settings_at, format_at=format_at, name=token)
        elif depth == 0 and word in _ROWS_INLINE:
            return None
        elif depth == 0 and word == b"SETTINGS" and settings_at is None:
            settings_at = token.start()
        elif depth == 0 and word == b"FORMAT":
            format_at = token.start()
    return None


def _cut(text: bytes, *, settings_at: int | None, format_at: int, name: re.Match[bytes]) -> Insert:
    head_end = format_at if settings_at is None else settings_at
    rest = _LINE_END.match(text, name.end())
    return Insert(
        head=text[:head_end].decode(),
        settings=text[head_end:format_at].decode(),
        format=name["word"].decode(),
        data_at=rest.end() if rest else name.end(),
    )


def quoted(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def identifier(text: str) -> str:
    """A quoted name."""
    return "`" + text.replace("\\", "\\\\").replace("`", "\\`") + "`"
