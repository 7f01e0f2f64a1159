"""Packed lives as columns: whatever stands in an entry, it is read or set aside, and never misread."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.lives import lives_of
from weir.model.lives import LifeOutcome
from weir.telemetry import lives
from weir.telemetry.codec import MetricEvent
from weir.telemetry.events import LIFE
from weir.telemetry.life_columns import PackedLives, find_lives, life_columns

NOW_MS = 1_763_251_200_000
READINGS = (5, 0, 0, 10, 1 << 44)


def six(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(6, "big") for number in numbers)


def head(form: int, outcome: int = 0, reason: int = 0, handler: int = 0) -> bytes:
    return bytes((form, outcome, reason)) + six(NOW_MS + 90) + handler.to_bytes(4, "big")


def direct(
    *, name: bytes = b"worker", key: bytes = b"k", raw_id: bytes = bytes(16), handler: int = 0
) -> bytes:
    """A life that was copied from a lease."""
    member = struct.pack(">Q16sIQQQB", 7, raw_id, 1, NOW_MS, NOW_MS, NOW_MS + 10_000, 4)
    handed_out = six(NOW_MS + 50, 25, 0, 0, 20, 1 << 44)
    origin = struct.pack(">QQB", NOW_MS, NOW_MS + 10_000, 4) + six(*READINGS)
    tail = key + struct.pack(">IB", 100, len(key))
    return (
        head(lives.DIRECT, handler=handler) + bytes((len(name),)) + name + member + handed_out + origin + tail
    )


def full(*, attempts: Sequence[bytes] = (b"a", b"bc"), key: bytes = b"key") -> bytes:
    """A life that was written out."""
    fixed = bytes(range(16)) + six(NOW_MS, NOW_MS + 1, NOW_MS + 40) + bytes((9,)) + (25).to_bytes(4, "big")
    fixed += six(500, 60, 1, 2, 3, 4, 5, 6, 7, 8) + bytes(16) + (77).to_bytes(4, "big")
    log = b"".join(six(NOW_MS, NOW_MS + 9) + bytes((3, len(name))) + name for name in attempts)
    return head(lives.FULL, outcome=1, reason=4) + fixed + bytes((len(key), len(attempts))) + key + log


def entry(records: Sequence[bytes]) -> bytes:
    return b"".join(len(one).to_bytes(2, "big") for one in records) + b"".join(records)


def found_in(*entries: tuple[bytes, int]) -> PackedLives:
    records = pa.array([data for data, _ in entries], pa.binary())
    return find_lives(records, np.array([count for _, count in entries], np.uint32))


def test_a_copied_lease_becomes_a_life_with_the_clocks_subtracted() -> None:
    event = MetricEvent(
        dimensions=("o", "p", "e", "q"),
        values={"lives": 1},
        texts={"records": entry([direct(handler=32, raw_id=bytes(range(16)))])},
    )
    (life,) = lives_of(event)
    assert (life.outcome, life.attempts, life.handler_ms) == (LifeOutcome.ACKED, 1, 31)
    assert (life.parts.paused_ms, life.parts.unasked_ms, life.parts.turn_ms) == (20, 10, 20)
    assert life.message_id == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (life.key, life.consumer, life.payload_bytes, life.leased_ms) == ("k", "worker", 100, 40)


def test_lives_of_all_forms_keep_their_order() -> None:
    records = [full(), direct(key=b""), full(attempts=(), key=b""), direct(name=b"x" * 255, key=b"y" * 255)]
    table = life_columns(found_in((entry(records), 4), (entry(records[:1]), 1)))
    assert table["outcome"].to_pylist() == [1, 0, 1, 0, 1]
    assert table["attempt_consumer"].to_pylist() == [["a", "bc"], ["worker"], [], ["x" * 255], ["a", "bc"]]
    assert table["key"].to_pylist() == ["key", "", "", "y" * 255, "key"]
    assert table["turn_ms"].to_pylist()[0] == 500 - 36


def test_a_broken_entry_does_not_spoil_the_others() -> None:
    good = entry([direct()])
    found = found_in((good, 1), (good, 2), (good[:-1], 1), (b"", 0), (good, 1), (b"\0\5" + bytes(5), 1))
    assert found.broken.tolist() == [False, True, True, True, False, True]
    assert found.entries.tolist() == [0, 4]


@pytest.mark.parametrize("record", [direct(), full()], ids=["direct", "full"])
def test_a_record_of_an_unknown_form_or_size_is_broken(record: bytes) -> None:
    for wrong in (
        b"\x09" + record[1:],
        record + b"\0" if record[0] == lives.FULL else record[:-60],
        record[:12],
    ):
        assert found_in((entry([wrong]), 1)).broken.tolist() == [True]


@given(st.data())
def test_any_bytes_are_read_or_set_aside(data: st.DataObject) -> None:
    packed = bytearray(entry([direct(), full(), direct(key=b"abc")]))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    good = entry([direct(raw_id=os.urandom(16))])
    found = found_in((bytes(packed), 3), (good, 1))
    assert not found.broken[1]
    assert life_columns(found).num_rows in (1, 4)


def test_codes_are_positions_that_never_change() -> None:
    assert lives.OUTCOMES == (
        LifeOutcome.ACKED,
        LifeOutcome.DEAD,
        LifeOutcome.EXPIRED,
        LifeOutcome.CANCELLED,
    )
    assert [str(one) for one in lives.ATTEMPT_ENDS] == ["acked", "failed", "rejected", "lapsed", "cancelled"]
    assert [one and one.value for one in lives.DEATH_REASONS] == [
        None,
        "attempts",
        "rejected",
        "expired",
        "lapsed",
    ]
    assert LIFE.version == 1
