"""What no spec may hold, in whatever form it is written: too many parts, and values that no store takes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from weir.spec.json_source import MAX_DIGITS
from weir.spec.read import Notes
from weir.spec.syntax import Condition, Document, JsonValue, Listing, Scalar, SourceSpan, SyntaxEntry

# Queues, webhooks, channels, consumers, alerts and schedules of one app. Reading this many takes a second.
MAX_PARTS = 5_000
# Fields of message types, and inputs of actions. Each chain compares those of two queues.
MAX_FIELDS = 20_000
MAX_CONSUMERS = 1_000
"""Consumers of one channel, over HTTP too: each published message goes to all of them."""
_HOLD_FIELDS = ("message_type", "map_to", "enqueue")
# PostgreSQL keeps no NUL in a text, and no answer can hold half a character.
_ODD = re.compile(r"[\x00\ud800-\udfff]")
_HALF = re.compile(r"[\ud800-\udfff]")


def check_bounds(document: Document, notes: Notes) -> None:
    """Note every odd value, and the first part over each limit."""
    counts = dict.fromkeys(_LIMITS, 0)
    waiting = [(entry, "") for entry in reversed(document.app.body or ())]
    _check_values(document.app, notes)
    while waiting:
        entry, parent = waiting.pop()
        kind = "fields and inputs" if parent in _HOLD_FIELDS else "parts" if _is_part(entry, parent) else ""
        if kind:
            counts[kind] += 1
            if counts[kind] == _LIMITS[kind] + 1:
                notes.add(
                    f"a spec has at most {_LIMITS[kind]:,} {kind}; split it over several environments",
                    entry.key_span,
                )
        _check_values(entry, notes)
        consumers = 0
        for inner in entry.body or ():
            consumers += inner.key == "consumer"
            if consumers == MAX_CONSUMERS + 1:
                notes.add(
                    f"a channel has at most {MAX_CONSUMERS:,} consumers; make another one", inner.key_span
                )
                break
        waiting += [(inner, entry.key) for inner in reversed(entry.body or ())]


_LIMITS = {"parts": MAX_PARTS, "fields and inputs": MAX_FIELDS}


def _is_part(entry: SyntaxEntry, parent: str) -> bool:
    return not parent or (parent == "channel" and entry.key == "consumer")


def _check_values(entry: SyntaxEntry, notes: Notes) -> None:
    if _ODD.search(entry.key):
        notes.add("this name holds a NUL or half of a character; remove it", entry.key_span)
    for scalar in _scalars(entry):
        _check_scalar(scalar, entry.key, notes)
    if isinstance(entry.value, JsonValue):
        _check_payload(entry.value, notes)


def _scalars(entry: SyntaxEntry) -> Iterator[Scalar]:
    if entry.label is not None:
        yield entry.label
    match entry.value:
        case Scalar():
            yield entry.value
        case Listing(items=items):
            yield from items
        case Condition(metric=metric, threshold=threshold):
            yield from (metric, threshold)


def _check_scalar(scalar: Scalar, key: str, notes: Notes) -> None:
    value = scalar.value
    if isinstance(value, str):
        if _ODD.search(value):
            notes.add(f"`{key}` holds a NUL or half of a character; remove it", scalar.span)
    elif not math.isfinite(value):
        notes.add(f"`{key}` is {scalar.text:.30}; {_FINITE}", scalar.span)


def _check_payload(payload: JsonValue, notes: Notes) -> None:
    for value, span in _values(payload):
        if isinstance(value, str):
            if _HALF.search(value):
                notes.add("a text in `payload` holds half of a character; remove it", span)
        elif isinstance(value, float) and not math.isfinite(value):
            notes.add(f"a number in `payload` is not one that JSON can hold; {_FINITE}", span)


_FINITE = f"expected a number of at most {MAX_DIGITS} characters"


def _values(payload: JsonValue) -> Iterator[tuple[Any, SourceSpan]]:
    """Every name and value inside of a payload, without recursion, because it may be nested deeply."""
    waiting: list[Any] = [payload.value]
    while waiting:
        value = waiting.pop()
        yield value, payload.span
        if isinstance(value, dict):
            waiting += value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
