"""The description of everything: what the framework knows, and the hot routes beside it."""

from __future__ import annotations

from typing import Any


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """The framework's description with the hot routes and the way to authenticate."""
    return document
