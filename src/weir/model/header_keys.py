"""Idempotency keys in the headers of requests."""

from __future__ import annotations

import re

from weir.errors import Malformed

MAX_KEY_CHARACTERS = 200
_VISIBLE = re.compile(rf"[\x21-\x7e]{{1,{MAX_KEY_CHARACTERS}}}", re.ASCII)


def key_in_header(value: str, *, header: str) -> str:
    """The key in a header, with or without the quotes of a structured field."""
    text = value.strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if not _VISIBLE.fullmatch(text):
        raise Malformed(f"the header `{header}` must be 1 to {MAX_KEY_CHARACTERS} visible ASCII characters")
    return text
