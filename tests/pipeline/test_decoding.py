"""Where events are placed in time, and what is noted about those that do not fit."""

from __future__ import annotations

import pytest

from weir.model.durations import DAY_MS
from weir.pipeline.decoding import CLAMPED, LATE, SET_ASIDE, Ages, Events, events_of
from weir.pipeline.definition import QUEUE_METRIC
from weir.telemetry.codec import MetricEvent, pack
from weir.telemetry.entries import entries_of
from weir.telemetry.events import QUEUE
from weir.warehouse.tables import TierRetention

NOW_MS = 1_763_251_203_000


def placed(*times_ms: int, payload: bytes | None = None) -> Events:
    good = pack(QUEUE, MetricEvent(dimensions=("o", "p", "e", "q"), values={"enqueued": 1}))
    entries = entries_of(
        [(b"%d-0" % ms, (b"e", payload if payload is not None else good)) for ms in times_ms]
    )
    return events_of(QUEUE_METRIC, entries, shard=3, at_ms=NOW_MS, ages=Ages.of(TierRetention()))


def test_an_event_counts_at_the_time_of_its_stream_id() -> None:
    found = placed(NOW_MS - 7_000)
    assert found.table["at_ms"].to_pylist() == [NOW_MS - 7_000]
    assert found.table["shard"].to_pylist() == [3]
    assert found.rejects == ()


@pytest.mark.parametrize("ahead_ms", [61_000, DAY_MS, 2**63 - 1 - NOW_MS])
def test_an_event_from_the_future_counts_when_it_was_planned_and_is_noted(ahead_ms: int) -> None:
    found = placed(NOW_MS - 1, NOW_MS + ahead_ms)
    assert found.table["at_ms"].to_pylist() == [NOW_MS - 1, NOW_MS]
    (note,) = found.rejects
    assert (note.reason, note.action, note.events) == ("from the future", CLAMPED, 1)


def test_an_event_older_than_the_finest_tier_still_counts_and_is_noted() -> None:
    found = placed(NOW_MS - 3 * DAY_MS)
    assert found.table.num_rows == 1
    assert [(note.action, note.events) for note in found.rejects] == [(LATE, 1)]


def test_an_event_older_than_every_tier_is_set_aside() -> None:
    found = placed(NOW_MS - 401 * DAY_MS, 5, NOW_MS)
    assert found.table["at_ms"].to_pylist() == [NOW_MS]
    assert [(note.reason, note.action, note.events) for note in found.rejects] == [
        ("older than every tier", SET_ASIDE, 2)
    ]


def test_what_is_set_aside_can_be_looked_at() -> None:
    found = placed(NOW_MS, NOW_MS + 1, payload=b"junk")
    assert found.table.num_rows == 0
    (note,) = found.rejects
    assert (note.reason, note.action, note.events) == ("truncated header", SET_ASIDE, 2)
    assert bytes.fromhex(note.samples[0]) == b"junk"
    assert (note.first_id, note.last_id) == (f"{NOW_MS}-0", f"{NOW_MS + 1}-0")
