"""Writes the reference page of the events from their catalogue."""

from __future__ import annotations

from collections.abc import Iterator

from weir.telemetry.events import CATALOGUE, STREAM_FIELD, EventKind, Field, TextField
from weir.telemetry.streams import stream_key


def events_page() -> str:
    """The page as Markdown."""
    return "\n".join(_page())


def _page() -> Iterator[str]:
    yield "# Events"
    yield ""
    yield "Generated from `weir.telemetry.events`; `weir.telemetry.reference` writes this page."
    yield ""
    layout = "a packed event, numbers unsigned and little-endian"
    yield f"A stream entry has one field, `{STREAM_FIELD}`: {layout}."
    yield ""
    yield "1. the layout version of the kind, 1 byte"
    yield "2. the fields below, in order"
    yield "3. the number of samples, 4 bytes"
    yield "4. the length of each text, 2 bytes, or 4 bytes if a text of the kind may have 64 kB or more"
    yield "5. the length of each dimension, 1 byte"
    yield "6. the dimensions, UTF-8, without separators"
    yield "7. the texts, UTF-8 or any bytes, without separators"
    yield "8. the samples, 4 bytes each"
    yield ""
    yield "An event's time is that of its stream id."
    yield ""
    yield "Entries and archive files of every earlier version are read: a field that they lack is 0, a text"
    yield "that they lack is empty. A pipeline that is older than the events says so and stops, before it"
    yield "reads or trims anything."
    for kind in CATALOGUE:
        yield from _section(kind)


def _section(kind: EventKind) -> Iterator[str]:
    yield ""
    yield f"## `{kind.name}`"
    yield ""
    yield kind.doc
    yield ""
    yield f"- Stream: `{stream_key(kind.name, 0)}` for shard 0, and so on."
    yield f"- Dimensions: {', '.join(f'`{name}`' for name in kind.dimensions)}."
    yield from (_text_line(text) for text in kind.texts)
    samples = f"`{kind.samples}`, kept as a sketch of percentiles" if kind.samples else "none"
    yield f"- Samples: {samples}."
    yield f"- Layout version: {kind.version}."
    yield f"- Header: {kind.layout.header_size} bytes."
    yield ""
    yield "| field | bytes | a bucket keeps | meaning |"
    yield "|---|---|---|---|"
    yield from map(_row, kind.fields)


def _text_line(text: TextField) -> str:
    content = "any bytes" if text.binary else "UTF-8"
    return f"- Text `{text.name}`: {content}, at most {text.max_bytes} bytes. {text.doc}"


def _row(field: Field) -> str:
    kept = ", ".join(field.aggregates) or "nothing"
    return f"| `{field.name}` | {field.width} | {kept} | {field.doc} |"
