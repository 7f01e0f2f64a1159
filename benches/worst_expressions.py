"""Reads `worst_expressions.txt`: expressions that cost an engine without bounds seconds or gigabytes."""

from __future__ import annotations

import json
from pathlib import Path

FILE = Path(__file__).with_suffix(".txt")


def payloads() -> dict[str, bytes]:
    """The payloads that the file names."""
    numbers = list(range(999))
    objects = [{"id": number, "name": f"n{number}", "v": [1, 2, 3]} for number in range(2_000)]
    values: dict[str, object] = {
        "numbers": {"l": numbers, **{f"m{number}": number for number in numbers}},
        "list": numbers,
        "text": {"s": "a" * 40_000, "r": "(a?){500}" * 5 + "b"},
        "objects": {"l": objects, "x": 1},
        "tiny": {"x": 1},
    }
    written = {name: json.dumps(value).encode() for name, value in values.items()}
    return {**written, "deep": b'{"a":' * 1_000 + b"1" + b"}" * 1_000}


def worst_expressions() -> list[tuple[str, str]]:
    """The name of a payload, and an expression over it."""
    lines = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    return [(name, text.replace("%0A", "\n")) for name, _, text in (line.partition("|") for line in lines)]
