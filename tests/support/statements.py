"""A SQL statement that only a test needs."""

from __future__ import annotations

from weir.control.sql import NamedQuery


def statement(text: str) -> NamedQuery:
    return NamedQuery(name="test", sentence="A step of a test.", text=text)
