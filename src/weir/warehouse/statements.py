"""Splits the text of a SQL file into statements."""

from __future__ import annotations

import re

# Comments and quoted texts are whole tokens, so that a semicolon inside one does not end a statement.
_TOKEN = re.compile(
    r"""--[^\n]*(?:\n|$)|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`|;|[^;'"`/-]+|.""",
    re.DOTALL,
)


def split_statements(text: str) -> list[str]:
    """The statements of `text` in order; semicolons inside quotes and comments do not count."""
    statements: list[str] = []
    current: list[str] = []
    has_code = False
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == ";":
            if has_code:
                statements.append("".join(current).strip())
            current, has_code = [], False
            continue
        current.append(token)
        has_code = has_code or not (token.isspace() or token.startswith(("--", "/*")))
    if has_code:
        statements.append("".join(current).strip())
    return statements
