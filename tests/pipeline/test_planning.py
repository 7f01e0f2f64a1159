"""What a batch takes, and that everything about it follows from its two offsets."""

from __future__ import annotations

import json
from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.pipeline.offsets import Offset, Stream, read_tasks_between
from weir.pipeline.planning import Bounds, next_offset, spread
from weir.telemetry.store import Tail
from weir.telemetry.stream_ids import StreamId, format_id, is_after, parse_id

NOW_MS = 1_763_251_203_000
QUEUE_0: Stream = ("queue", 0)
STREAMS = st.tuples(st.sampled_from(["queue", "a/b:c"]), st.integers(0, 20))


class Ids:
    """Streams that are only ids."""

    def __init__(self, **ids: list[StreamId]) -> None:
        self._ids = {("queue", int(name[1:])): [(ms + 1, seq) for ms, seq in ids[name]] for name in ids}

    @property
    def tails(self) -> dict[Stream, Tail]:
        return {
            stream: Tail(
                length=len(ids), first_id=format_id(ids[0]), last_id=format_id(ids[-1]), dropped=None
            )
            for stream, ids in self._ids.items()
        }

    def ids_after(self, stream: Stream, position: str, *, count: int) -> list[str]:
        at = bisect_right(self._ids[stream], parse_id(position))
        return [format_id(one) for one in self._ids[stream][at : at + count]]

    def ids_until(self, stream: Stream, position: str, *, count: int) -> list[str]:
        at = bisect_right(self._ids[stream], parse_id(position))
        return [format_id(one) for one in self._ids[stream][max(at - count, 0) : at]][::-1]

    def taken(self, start: Offset, end: Offset, stream: Stream = QUEUE_0) -> int:
        ids = self._ids[stream]
        return bisect_right(ids, parse_id(end.position(stream))) - bisect_right(
            ids, parse_id(start.position(stream))
        )


def plan(ids: Ids, start: Offset, *, max_events: int = 10_000, max_read_tasks: int = 2) -> Offset:
    bounds = Bounds(max_events=max_events, max_read_tasks=max_read_tasks)
    return next_offset(start, ids.tails, bounds=bounds, probe=ids, now_ms=NOW_MS)


def test_nothing_new_is_the_same_offset_again() -> None:
    ids = Ids(s0=[(4, 0)])
    start = Offset(at_ms=1, positions={QUEUE_0: "5-0"})
    assert plan(ids, start) is start


def test_a_short_stream_is_taken_whole() -> None:
    ids = Ids(s0=[(ms, 0) for ms in range(99)], s1=[(6, 3)])
    end = plan(ids, Offset())
    assert end.positions == {QUEUE_0: "99-0", ("queue", 1): "7-3"}


@pytest.mark.parametrize(
    "ids",
    [
        [(ms, 0) for ms in range(40_000)],
        [(ms // 50, ms % 50) for ms in range(40_000)],
        [(ms * 400, 0) for ms in range(20)] + [(100_000_000 + ms // 100, ms % 100) for ms in range(40_000)],
        [(ms * 10, 0) for ms in range(2_000)] + [(20_000 + ms // 100, ms % 100) for ms in range(38_000)],
        [(burst * 600 + ms // 25, ms % 25) for burst in range(80) for ms in range(500)],
    ],
    ids=["steady", "dense", "silence then a burst", "slow then a burst", "bursts"],
)
def test_a_backlog_is_taken_in_bounded_steps_that_always_advance(ids: list[tuple[int, int]]) -> None:
    streams, offset, sizes = Ids(s0=ids), Offset(), []
    while (end := plan(streams, offset, max_events=5_000)) is not offset:
        sizes.append(streams.taken(offset, end))
        offset = end
    assert sum(sizes) == len(ids)
    assert min(sizes) > 0
    assert max(sizes) <= 15_000
    assert len(sizes) <= 24


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["queue", "worker"]), st.integers(0, 9)), st.integers(0, 60_000)
    )
)
def test_every_stream_gets_a_lane_and_no_lane_without_need(sizes: dict[Stream, int]) -> None:
    read_tasks = spread(sizes, max_read_tasks=3)
    assert set(read_tasks) == set(sizes)
    assert set(read_tasks.values()) <= set(range(3))
    if sum(sizes.values()) <= 15_000:
        assert set(read_tasks.values()) <= {0}


OFFSETS = st.builds(
    Offset,
    at_ms=st.integers(0, 2**45),
    positions=st.dictionaries(
        STREAMS,
        st.tuples(st.integers(1, 2**45), st.integers(0, 9)).map(format_id),
    ),
    read_tasks=st.dictionaries(
        st.tuples(st.sampled_from(["queue", "a/b:c"]), st.integers(0, 20)), st.integers(0, 3)
    ),
)


@given(OFFSETS)
def test_an_offset_survives_the_checkpoint(offset: Offset) -> None:
    text = json.dumps(offset.as_json())
    assert Offset.from_json(json.loads(text)) == offset
    assert json.dumps(Offset.from_json(json.loads(text)).as_json()) == text


@given(OFFSETS, OFFSETS)
def test_a_replay_has_the_same_lanes_and_tokens(start: Offset, end: Offset) -> None:
    once = read_tasks_between(start, end)
    again = read_tasks_between(Offset.from_json(start.as_json()), Offset.from_json(end.as_json()))
    assert once == again
    assert [read_task.token("queue") for read_task in once] == [
        read_task.token("queue") for read_task in again
    ]


def test_other_ranges_have_other_tokens() -> None:
    tokens = {
        read_tasks_between(
            Offset(positions={QUEUE_0: start}), Offset(positions={QUEUE_0: end, ("queue", 1): other})
        )[0].token("queue")
        for start in ("1-0", "1-1")
        for end in ("2-0", "3-0")
        for other in ("4-0", "4-1")
    }
    assert len(tokens) == 8


def test_ids_order_by_number_and_not_by_text() -> None:
    assert is_after("10-0", "9-0")
    assert is_after("9-10", "9-9")
    assert parse_id("7") == (7, 0)
