"""Stream ids: `milliseconds-sequence`, ordered by both."""

from __future__ import annotations

ORIGIN = "0-0"
"""The position before the first entry."""

StreamId = tuple[int, int]
"""Milliseconds and sequence."""


def parse_id(text: str) -> StreamId:
    ms, _, sequence = text.partition("-")
    return int(ms), int(sequence or 0)


def format_id(value: StreamId) -> str:
    return f"{value[0]}-{value[1]}"


def is_after(text: str, other: str) -> bool:
    return parse_id(text) > parse_id(other)
