"""Texts and bytes of events: packed alike in Python and in Lua, and decoded to what was packed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis

from support.urls import with_database
from weir.telemetry.codec import MetricEvent, pack, unpack
from weir.telemetry.entries import Entries, entries_of
from weir.telemetry.event_columns import FAULTS, decode
from weir.telemetry.events import EventKind, Field, TextField
from weir.telemetry.lua import emit_block

KIND = EventKind(
    name="life",
    dimensions=("environment", "queue"),
    fields=(Field(name="attempt", width=4), Field(name="took_ms", width=8), Field(name="step", width=1)),
    texts=(
        TextField(name="message_id", max_bytes=16, binary=True),
        TextField(name="key", max_bytes=10),
        TextField(name="error", max_bytes=40),
    ),
    samples="waits",
)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
EVENTS = st.builds(
    MetricEvent,
    dimensions=st.tuples(NAMES, NAMES),
    # Lua's numbers are doubles, and exact up to 2^53.
    values=st.fixed_dictionaries(
        {"attempt": st.integers(0, 2**32 - 1), "took_ms": st.integers(0, 2**53), "step": st.integers(0, 255)}
    ),
    texts=st.fixed_dictionaries({"message_id": st.binary(max_size=24), "key": TEXTS, "error": TEXTS}),
    samples=st.lists(st.integers(0, 2**32 - 1), max_size=4).map(tuple),
)


def entries(*payloads: bytes) -> Entries:
    return entries_of([(b"%d-0" % at, (b"e", payload)) for at, payload in enumerate(payloads, start=1)])


def cut(event: MetricEvent, kind: EventKind = KIND) -> dict[str, str | bytes]:
    """What is left of the texts of an event."""
    return {text.name: text.read(text.cut(event.texts.get(text.name, b""))) for text in kind.texts}


def lua_script(kind: EventKind) -> str:
    texts = {text.name: f"ARGV[{3 + at}]" for at, text in enumerate(kind.texts)}
    first = 3 + len(kind.texts)
    numbers = {field.name: f"tonumber(ARGV[{first + at}])" for at, field in enumerate(kind.fields)}
    after = first + len(kind.fields)
    return emit_block(
        kind,
        enabled="'1'",
        stream="KEYS[1]",
        max_length="1000",
        dimensions=("ARGV[1]", "ARGV[2]"),
        values=numbers,
        texts=texts,
        prepare=f"local waits = {{}}\n for i = {after}, #ARGV do waits[#waits + 1] = tonumber(ARGV[i]) end",
        samples="waits",
    )


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    client = Redis.from_url(with_database(redis_url, "7"))
    yield client
    client.delete("texts")
    client.close()


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=6))
def test_columns_hold_the_texts_that_were_packed(events: list[MetricEvent]) -> None:
    packed = [pack(KIND, event) for event in events]
    decoded = decode(KIND, entries(*packed))
    assert not decoded.codes.any()
    for row, event, data in zip(decoded.events.to_pylist(), events, packed, strict=True):
        expected = replace(event, texts=cut(event))
        assert unpack(KIND, data) == expected
        assert {name: row[name] for name in expected.texts} == expected.texts
        assert {name: row[name] for name in expected.values} == expected.values
        assert tuple(row["waits"]) == event.samples
        assert (row["environment"], row["queue"]) == event.dimensions


def test_lua_packs_every_event_as_python_does(redis: Redis) -> None:
    script = redis.register_script(lua_script(KIND))

    @settings(max_examples=100, deadline=None)
    @given(EVENTS)
    def check(event: MetricEvent) -> None:
        texts = [event.texts[text.name] for text in KIND.texts]
        numbers = [event.values[field.name] for field in KIND.fields]
        redis.delete("texts")
        script(keys=["texts"], args=[*event.dimensions, *texts, *numbers, *event.samples])
        ((_, fields),) = redis.xrange("texts")
        assert fields[b"e"] == pack(KIND, event)

    check()


def test_lua_fills_texts_that_are_left_out_with_nothing(redis: Redis) -> None:
    block = emit_block(
        KIND, enabled="'1'", stream="KEYS[1]", max_length="9", dimensions=("'e'", "'q'"), values={"step": "7"}
    )
    redis.eval(block, 1, "texts")
    ((_, fields),) = redis.xrange("texts")
    assert fields[b"e"] == pack(KIND, MetricEvent(dimensions=("e", "q"), values={"step": 7}))
    with pytest.raises(ValueError, match="does not fit"):
        emit_block(
            KIND, enabled="1", stream="s", max_length="9", dimensions=("a", "b"), values={}, texts={"x": "y"}
        )


@pytest.mark.parametrize("text", ["a" * 50, "é" * 25, "€" * 15, "𝄞" * 12, "ab€" * 9, "x" + "𝄞" * 12])
def test_a_long_text_is_cut_between_two_characters(text: str) -> None:
    field = TextField(name="t", max_bytes=40)
    kept = field.cut(text).decode()
    assert text.startswith(kept)
    assert 37 <= len(kept.encode()) <= 40


def test_text_that_is_not_utf8_keeps_its_event() -> None:
    event = MetricEvent(dimensions=("e", "q"), texts={"error": b"caf\xe9 \xff", "key": "ok"})
    data = pack(KIND, event)
    decoded = decode(KIND, entries(data, pack(KIND, MetricEvent(dimensions=("e", "q")))))
    assert not decoded.codes.any()
    assert decoded.events["error"].to_pylist() == ["caf\ufffd \ufffd", ""]
    assert unpack(KIND, data).texts["error"] == "caf\ufffd \ufffd"


def test_a_lone_surrogate_is_replaced_and_a_binary_text_keeps_every_byte() -> None:
    event = MetricEvent(
        dimensions=("e", "q"), texts={"error": "bad \ud800", "message_id": bytes(range(240, 256))}
    )
    (row,) = decode(KIND, entries(pack(KIND, event))).events.to_pylist()
    assert (row["error"], row["message_id"]) == ("bad ?", bytes(range(240, 256)))


def test_the_lengths_of_texts_are_checked() -> None:
    whole = pack(KIND, MetricEvent(dimensions=("e", "q"), texts={"error": "why"}))
    decoded = decode(KIND, entries(whole[:-1], whole, whole + b"!"))
    wrong = "length does not match header"
    assert [FAULTS[code] for code in decoded.codes] == [wrong, "", wrong]


def test_versions_may_gain_and_lose_texts() -> None:
    first = replace(KIND, texts=(TextField(name="key", max_bytes=10), TextField(name="gone", max_bytes=10)))
    now = replace(KIND, earlier=(first.fields_and_texts,))
    old = pack(
        first, MetricEvent(dimensions=("e", "q"), values={"step": 3}, texts={"key": "k1", "gone": "x"})
    )
    new = pack(now, MetricEvent(dimensions=("e", "q"), texts={"key": "k2", "error": "why"}))
    decoded = decode(now, entries(old, new, old))
    assert not decoded.codes.any()
    rows = decoded.events.to_pylist()
    assert [(row["key"], row["error"], row["message_id"], row["step"]) for row in rows] == [
        ("k1", "", b"", 3),
        ("k2", "why", b"", 0),
        ("k1", "", b"", 3),
    ]
    assert unpack(now, old).texts == {"message_id": b"", "key": "k1", "error": ""}


def test_a_name_that_the_kind_does_not_have_is_refused() -> None:
    for event in (
        MetricEvent(dimensions=("e", "q"), values={"attempts": 1}),
        MetricEvent(dimensions=("e", "q"), texts={"reason": "x"}),
    ):
        with pytest.raises(ValueError, match="`life` events have no `"):
            pack(KIND, event)
    with pytest.raises(ValueError, match="no `samples`"):
        pack(replace(KIND, samples=None), MetricEvent(dimensions=("e", "q"), samples=(1,)))
    with pytest.raises(ValueError, match="at most 16384 bytes"):
        pack(KIND, MetricEvent(dimensions=("e", "q"), samples=(1,) * 5_000))
