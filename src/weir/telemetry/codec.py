"""Packs and unpacks single events; `events` describes the layout, and `lua` packs it in scripts."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from weir.telemetry.events import EventKind, EventLayout

# Samples are packed as 32-bit numbers; larger ones are cut to this.
MAX_SAMPLE = (1 << 32) - 1

TRUNCATED = "truncated header"
UNKNOWN_VERSION = "unknown layout version"
WRONG_LENGTH = "length does not match header"
NOT_UTF8 = "dimension is not UTF-8"


class Undecodable(ValueError):
    """The bytes are not an event of this kind; the text is the reason for setting them aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricEvent:
    """One event before it is packed, or after it was unpacked."""

    dimensions: tuple[str, ...]
    """The names of its subject, in the order of the kind's dimensions."""
    values: Mapping[str, int] = field(default_factory=dict)
    """Numbers by field; a field that is left out is 0."""
    texts: Mapping[str, str | bytes] = field(default_factory=dict)
    """Texts and bytes by name; one that is left out is empty."""
    samples: tuple[int, ...] = ()


def pack(kind: EventKind, event: MetricEvent) -> bytes:
    """The packed form of one event; fields that it does not name are 0, and texts are empty."""
    _require_known(kind, event)
    names = [text.encode() for text in event.dimensions]
    texts = [text.cut(event.texts.get(text.name, b"")) for text in kind.texts]
    limits = ((1 << 8 * field.width) - 1 for field in kind.fields)
    # Values beyond the width of their field are cut to its limit: such an event tells more than
    # no event.
    numbers = (
        min(max(event.values.get(field.name, 0), 0), top)
        for field, top in zip(kind.fields, limits, strict=True)
    )
    lengths = (len(part) for part in (*texts, *names))
    header = struct.pack(kind.layout.struct_format, kind.version, *numbers, len(event.samples), *lengths)
    samples = (min(max(sample, 0), MAX_SAMPLE) for sample in event.samples)
    packed = b"".join((header, *names, *texts, struct.pack(f"<{len(event.samples)}I", *samples)))
    if len(packed) > kind.max_bytes:
        raise ValueError(f"an event has at most {kind.max_bytes} bytes, and this one has {len(packed)}")
    return packed


def _require_known(kind: EventKind, event: MetricEvent) -> None:
    """Refuse names that the kind does not have; a misspelled one would otherwise count as 0."""
    known = {field.name for field in kind.fields} | {text.name for text in kind.texts}
    unknown = sorted({*event.values, *event.texts} - known)
    if unknown or (event.samples and kind.samples is None):
        raise ValueError(f"`{kind.name}` events have no `{unknown[0] if unknown else 'samples'}`")


def unpack(kind: EventKind, data: bytes) -> MetricEvent:
    """Unpack one event. The pipeline decodes whole batches into columns instead."""
    layout = _layout_of(kind, data)
    if len(data) < layout.header_size:
        raise Undecodable(TRUNCATED)
    _, *numbers = struct.unpack_from(layout.struct_format, data)
    found = dict(zip((field.name for field in layout.fields), numbers, strict=False))
    sample_count, *lengths = numbers[len(layout.fields) :]
    if len(data) != layout.header_size + sum(lengths) + 4 * sample_count:
        raise Undecodable(WRONG_LENGTH)
    of_texts, of_names = lengths[: len(layout.texts)], lengths[len(layout.texts) :]
    texts_at = layout.header_size + sum(of_names)
    parts = _parts(data, of_texts, start=texts_at)
    texts = dict(zip((text.name for text in layout.texts), parts, strict=True))
    return MetricEvent(
        dimensions=tuple(_name(part) for part in _parts(data, of_names, start=layout.header_size)),
        values={field.name: found.get(field.name, 0) for field in kind.fields},
        texts={text.name: text.read(texts.get(text.name, b"")) for text in kind.texts},
        samples=struct.unpack_from(f"<{sample_count}I", data, texts_at + sum(of_texts)),
    )


def _layout_of(kind: EventKind, data: bytes) -> EventLayout:
    if not data:
        raise Undecodable(TRUNCATED)
    if not 1 <= data[0] <= kind.version:
        raise Undecodable(UNKNOWN_VERSION)
    return kind.layouts[data[0] - 1]


def _parts(data: bytes, lengths: Sequence[int], *, start: int) -> list[bytes]:
    """The pieces of these lengths, one after the other."""
    return [data[begin:end] for begin, end in pairwise(accumulate(lengths, initial=start))]


def _name(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Undecodable(NOT_UTF8) from None
