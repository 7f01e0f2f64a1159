"""The columnar decoder against the codec that decodes one event at a time."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.telemetry.codec import MetricEvent, Undecodable, pack, unpack
from weir.telemetry.entries import Entries, entries_of
from weir.telemetry.event_columns import FAULTS, decode
from weir.telemetry.events import MAX_EVENT_BYTES, QUEUE, WORKER, WORKER_LAG, Aggregate, EventKind, Field

NAMES = st.text(min_size=1, max_size=40).filter(lambda text: 0 < len(text.encode(errors="ignore")) <= 255)
TEXTS = NAMES.filter(lambda text: not any("\ud800" <= char <= "\udfff" for char in text))


def entries(*payloads: bytes) -> Entries:
    return entries_of(
        [(b"%d-%d" % (1_700_000_000_000 + at, at), (b"e", payload)) for at, payload in enumerate(payloads)]
    )


def events_of(kind: EventKind) -> st.SearchStrategy[MetricEvent]:
    numbers = {field.name: st.integers(0, 2 ** (8 * field.width) - 1) for field in kind.fields}
    return st.builds(
        MetricEvent,
        dimensions=st.tuples(*(TEXTS for _ in kind.dimensions)),
        values=st.fixed_dictionaries(numbers),
        samples=st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple) if kind.samples else st.just(()),
    )


def event(**values: int) -> bytes:
    return pack(QUEUE, MetricEvent(dimensions=("o", "p", "e", "q"), values=values))


@settings(max_examples=60, deadline=None)
@given(st.lists(events_of(QUEUE), min_size=1, max_size=6))
def test_columns_hold_what_the_codec_reads_one_by_one(events: list[MetricEvent]) -> None:
    decoded = decode(QUEUE, entries(*(pack(QUEUE, event) for event in events)))
    assert not decoded.codes.any()
    rows = decoded.events.to_pylist()
    for row, event in zip(rows, events, strict=True):
        assert tuple(row[name] for name in QUEUE.dimensions) == event.dimensions
        assert {field.name: row[field.name] for field in QUEUE.fields} == event.values
        assert tuple(row["wait_ms"]) == event.samples


@settings(max_examples=20, deadline=None)
@given(st.lists(events_of(WORKER), min_size=1, max_size=4))
def test_a_kind_without_samples_decodes_too(events: list[MetricEvent]) -> None:
    decoded = decode(WORKER, entries(*(pack(WORKER, event) for event in events)))
    assert decoded.events.num_rows == len(events)
    assert "wait_ms" not in decoded.events.schema.names


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 139), st.integers(0, 255))
def test_junk_never_raises_and_is_judged_as_the_codec_judges_it(junk: bytes, at: int, byte: int) -> None:
    damaged = bytearray(event(enqueued=1))
    damaged[at % len(damaged)] = byte
    payloads = [junk, bytes(damaged), event(enqueued=2)]
    decoded = decode(QUEUE, entries(*payloads))
    assert decoded.codes[2] == 0
    for payload, code in zip(payloads, decoded.codes, strict=True):
        try:
            accepted = all(unpack(QUEUE, payload).dimensions)
        except Undecodable:
            accepted = False
        assert (code == 0) == accepted


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((b"x", b"y"), "no event field"),
        ((b"e", b"\x01" * (MAX_EVENT_BYTES + 1)), "oversized"),
        ((b"e", b""), "truncated header"),
        ((b"e", b"\x07" + event()[1:]), "unknown layout version"),
        ((b"e", event() + b"!"), "length does not match header"),
        ((b"e", event().replace(b"opeq", b"op\xffq")), "dimension is not UTF-8"),
        ((b"e", pack(QUEUE, MetricEvent(dimensions=("", "p", "e", "q"), values={}))), "dimension is empty"),
    ],
)
def test_what_is_no_event_is_set_aside_with_its_reason(fields: tuple[bytes, bytes], reason: str) -> None:
    decoded = decode(QUEUE, entries_of([(b"1-0", fields), (b"2-0", (b"e", event(acked=3)))]))
    assert [FAULTS[code] for code in decoded.codes] == [reason, ""]
    assert decoded.events["acked"].to_pylist() == [3]
    assert decoded.events["stream_ms"].to_pylist() == [2]


def test_an_entry_with_more_fields_is_read_by_its_event_field() -> None:
    decoded = decode(QUEUE, entries_of([(b"5-1", (b"a", b"b", b"e", event(dead=2)))]))
    assert decoded.events["dead"].to_pylist() == [2]
    assert decoded.events["stream_sequence"].to_pylist() == [1]


def test_two_subjects_whose_joined_names_agree_stay_two() -> None:
    one = pack(QUEUE, MetricEvent(dimensions=("ab", "c", "e", "q"), values={"enqueued": 1}))
    other = pack(QUEUE, MetricEvent(dimensions=("a", "bc", "e", "q"), values={"enqueued": 2}))
    decoded = decode(QUEUE, entries(one, other))
    assert decoded.events["organization"].to_pylist() == ["ab", "a"]
    assert decoded.events["project"].to_pylist() == ["c", "bc"]


def test_nothing_decodes_to_nothing() -> None:
    empty = Entries(ids=np.zeros((0, 2), np.uint64), lengths=np.zeros(0, np.uint32), data=b"")
    assert decode(QUEUE, empty).events.num_rows == 0


def test_the_layout_of_a_header_is_what_the_catalogue_says() -> None:
    assert struct.calcsize(QUEUE.layout.struct_format) == QUEUE.layout.header_size


FIRST = QUEUE.fields
GROWN = replace(
    QUEUE,
    earlier=(*QUEUE.earlier, FIRST),
    # One field is gone, one became wider, one is new and stands in the middle.
    fields=(
        *(replace(field, width=8) if field.name == "acked" else field for field in FIRST[:4]),
        Field(name="moved", width=4, aggregates=(Aggregate.SUM,), doc=""),
        *(field for field in FIRST[4:] if field.name != "refused"),
    ),
)


def test_entries_of_an_earlier_layout_are_read_into_the_columns_of_today() -> None:
    old = pack(
        QUEUE, MetricEvent(dimensions=("o", "p", "e", "q"), values={"acked": 7, "dead": 1}, samples=(5, 6))
    )
    new = pack(GROWN, MetricEvent(dimensions=("o", "p", "e", "r"), values={"acked": 2**40, "moved": 3}))
    decoded = decode(GROWN, entries(old, new, bytes([GROWN.version + 1]) + new[1:], old, new[:60]))
    assert [FAULTS[code] for code in decoded.codes] == [
        "", "", "unknown layout version", "", "truncated header",
    ]  # fmt: skip
    rows = decoded.events.to_pylist()
    assert [(row["queue"], row["acked"], row["moved"], row["dead"], row["wait_ms"]) for row in rows] == [
        ("q", 7, 0, 1, [5, 6]),
        ("r", 2**40, 3, 0, []),
        ("q", 7, 0, 1, [5, 6]),
    ]
    assert "refused" not in decoded.events.schema.names
    assert [row["stream_sequence"] for row in rows] == [0, 1, 3]
    assert unpack(GROWN, old).values["acked"] == 7


def test_an_entry_of_a_newer_layout_is_not_read() -> None:
    newer = pack(GROWN, MetricEvent(dimensions=("o", "p", "e", "r"), values={"moved": 3}))
    with pytest.raises(Undecodable, match="unknown layout version"):
        unpack(QUEUE, newer)


def test_only_the_dimensions_that_a_kind_names_may_be_empty() -> None:
    others, nobody = ("w1", "", "", "", ""), ("", "o", "p", "e", "q")
    packed = [pack(WORKER_LAG, MetricEvent(dimensions=names, samples=(7,))) for names in (others, nobody)]
    decoded = decode(WORKER_LAG, entries(*packed))
    assert [FAULTS[code] for code in decoded.codes] == ["", "dimension is empty"]
    (row,) = decoded.events.to_pylist()
    assert tuple(row[name] for name in WORKER_LAG.dimensions) == others
