"""Packs and unpacks single events; `events` describes the layout, and `lua` packs it in scripts."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weir.telemetry.events import EventKind, EventLayout

# Samples are packed as 32-bit numbers; larger ones are cut to this.
MAX_SAMPLE = (1 << 32) - 1


class Undecodable(ValueError):
    """The bytes are not an event of this kind; the text is the reason for setting them aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricEvent:
    dimensions: tuple[str, ...]
    values: Mapping[str, int]
    samples: tuple[int, ...] = ()


def pack(kind: EventKind, event: MetricEvent) -> bytes:
    """The packed form of one event; fields that it does not name are 0."""
    names = [text.encode() for text in event.dimensions]
    limits = ((1 << 8 * field.width) - 1 for field in kind.fields)
    # Values beyond the width of their field are cut to its limit: an event with a maximum tells more than
    # none.
    numbers = (
        min(max(event.values.get(field.name, 0), 0), top)
        for field, top in zip(kind.fields, limits, strict=True)
    )
    header = struct.pack(
        kind.layout.struct_format, kind.version, *numbers, len(event.samples), *(len(name) for name in names)
    )
    samples = (min(max(sample, 0), MAX_SAMPLE) for sample in event.samples)
    return b"".join((header, *names, struct.pack(f"<{len(event.samples)}I", *samples)))


def unpack(kind: EventKind, data: bytes) -> MetricEvent:
    """Unpack one event. The pipeline decodes whole batches into columns instead."""
    layout = _layout_of(kind, data)
    if len(data) < layout.header_size:
        raise Undecodable("truncated header")
    _, *numbers = struct.unpack_from(layout.struct_format, data)
    found = dict(zip((field.name for field in layout.fields), numbers, strict=False))
    sample_count, *lengths = numbers[len(layout.fields) :]
    if len(data) != layout.header_size + sum(lengths) + 4 * sample_count:
        raise Undecodable("length does not match header")
    names, end = _texts(data, lengths, start=layout.header_size)
    return MetricEvent(
        dimensions=names,
        values={field.name: found.get(field.name, 0) for field in kind.fields},
        samples=struct.unpack_from(f"<{sample_count}I", data, end),
    )


def _layout_of(kind: EventKind, data: bytes) -> EventLayout:
    if not data:
        raise Undecodable("truncated header")
    if not 1 <= data[0] <= kind.version:
        raise Undecodable("unknown layout version")
    return kind.layouts[data[0] - 1]


def _texts(data: bytes, lengths: Sequence[int], *, start: int) -> tuple[tuple[str, ...], int]:
    names = []
    for length in lengths:
        try:
            names.append(data[start : start + length].decode())
        except UnicodeDecodeError:
            raise Undecodable("dimension is not UTF-8") from None
        start += length
    return tuple(names), start
