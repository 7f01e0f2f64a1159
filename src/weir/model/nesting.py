"""How deep a JSON value may nest: parsers of consumers fail on deep ones."""

from __future__ import annotations

from typing import Any

from weir.errors import TooLarge


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


def may_be_deep(text: bytes, limit: int) -> bool:
    """Whether a JSON text could nest deeper than `limit`. Most cannot, and need no further look."""
    return text.count(b"[") + text.count(b"{") > limit
