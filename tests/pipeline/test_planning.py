"""What a batch takes, and that everything about it follows from its two offsets."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.errors import Misconfigured
from weir.pipeline.offsets import Offset, plan_between
from weir.pipeline.planning import JOIN_ROWS, Bounds, next_offset, parts_of, shares, spread
from weir.telemetry.store import Tail
from weir.telemetry.stream_ids import StreamId, format_id, is_after, parse_id
from weir.telemetry.streams import Stream

NOW_MS = 1_763_251_203_000
QUEUE_0: Stream = ("queue", 0)
STREAMS = st.tuples(st.sampled_from(["queue", "a/b:c"]), st.integers(0, 20))


class StreamProbe:
    """The probes that a planner makes, on a list of ids."""

    def __init__(self, ids: list[StreamId], counted: Ids) -> None:
        self._ids = ids
        self._counted = counted

    def neighbours(self, times_ms: Sequence[int]) -> list[tuple[StreamId | None, StreamId | None]]:
        self._counted.probes += 2 * len(times_ms)
        cuts = [bisect_left(self._ids, (at_ms + 1, 0)) for at_ms in times_ms]
        return [
            (self._ids[at - 1] if at else None, self._ids[at] if at < len(self._ids) else None) for at in cuts
        ]

    def windows(self, spans_ms: Sequence[tuple[int, int]], *, limit: int) -> list[list[StreamId]]:
        self._counted.probes += len(spans_ms)
        spans = [[bisect_left(self._ids, (at_ms, 0)) for at_ms in span] for span in spans_ms]
        return [self._ids[max(begin, end - limit) : end][::-1] for begin, end in spans]

    def last_until(self, position: str) -> str | None:
        at = bisect_right(self._ids, parse_id(position))
        return format_id(self._ids[at - 1]) if at else None


class Ids:
    """Streams that are only ids."""

    def __init__(self, **ids: list[StreamId]) -> None:
        self.probes = 0
        self._ids = {("queue", int(name[1:])): [(ms + 1, seq) for ms, seq in ids[name]] for name in ids}

    def tails(self, start: Offset) -> dict[Stream, Tail]:
        """The streams as they are when everything before the start is trimmed."""
        found = {}
        for stream, ids in self._ids.items():
            at = max(bisect_right(ids, parse_id(start.position(stream))) - 1, 0)
            found[stream] = Tail(
                length=len(ids) - at,
                first_id=format_id(ids[at]),
                last_id=format_id(ids[-1]),
                dropped=None,
            )
        return found

    def of(self, stream: Stream) -> StreamProbe:
        return StreamProbe(self._ids[stream], self)

    def taken_between(self, after: StreamId, until: StreamId) -> int:
        ids = self._ids[QUEUE_0]
        return bisect_right(ids, until) - bisect_right(ids, after)

    def taken(self, start: Offset, end: Offset, stream: Stream = QUEUE_0) -> int:
        ids = self._ids[stream]
        return bisect_right(ids, parse_id(end.position(stream))) - bisect_right(
            ids, parse_id(start.position(stream))
        )


def plan(ids: Ids, start: Offset, *, max_events: int = 10_000, max_read_tasks: int = 2) -> Offset:
    bounds = Bounds(max_events=max_events, max_read_tasks=max_read_tasks)
    return next_offset(start, ids.tails(start), bounds=bounds, probe=ids.of, now_ms=NOW_MS)


def test_nothing_new_is_the_same_offset_again() -> None:
    ids = Ids(s0=[(4, 0)])
    start = Offset(at_ms=1, positions={QUEUE_0: "5-0"})
    assert plan(ids, start) is start


def test_a_short_stream_is_taken_whole() -> None:
    ids = Ids(s0=[(ms, 0) for ms in range(99)], s1=[(6, 3)])
    end = plan(ids, Offset())
    assert end.positions == {QUEUE_0: "99-0", ("queue", 1): "7-3"}


def batch_sizes(ids: list[StreamId], *, max_events: int) -> list[int]:
    """The sizes of all batches until a stream is drained."""
    streams, offset, sizes = Ids(s0=ids), Offset(), []
    while (end := plan(streams, offset, max_events=max_events)) is not offset:
        sizes.append(streams.taken(offset, end))
        offset = end
    assert sum(sizes) == len(ids)
    assert min(sizes) > 0
    assert streams.probes <= 2_500 * len(sizes)
    return sizes


def at_times(*parts: tuple[int, int, int]) -> list[StreamId]:
    """Ids of parts after each other: entries, how many share a millisecond, and the milliseconds between."""
    ids, at_ms = [], 0
    for entries, each, step_ms in parts:
        ids += [(at_ms + number // each * step_ms, number % each) for number in range(entries)]
        at_ms = ids[-1][0] + step_ms
    return ids


def pulses(count: int, *, of: int, each: int, pause_ms: int) -> list[StreamId]:
    """Bursts with pauses between them, as many writers and pipelines make them."""
    chance, ids, at_ms = Random(5), [], 0
    for _ in range(count):
        size = chance.randrange(of // 2, of * 3 // 2)
        ids += [(at_ms + number // each, number % each) for number in range(size)]
        at_ms += size // each + 1 + chance.randrange(pause_ms, 2 * pause_ms)
    return ids


@pytest.mark.parametrize(
    "ids",
    [
        at_times((200_000, 1, 1)),
        at_times((200_000, 50, 1)),
        at_times((200_000, 1, 400)),
        at_times((20, 1, 400), (1, 1, 100_000_000), (200_000, 100, 1)),
        at_times((2_000, 1, 10), (198_000, 100, 1)),
        at_times((100_000, 100, 1), (100_000, 1, 10)),
        at_times(*([(500, 25, 1), (1, 1, 600)] * 400)),
        pulses(800, of=250, each=30, pause_ms=20),
        pulses(20, of=10_000, each=60, pause_ms=3_000),
        pulses(20_000, of=10, each=5, pause_ms=40),
    ],
    ids=[
        "steady", "dense", "sparse", "silence then a burst", "slow then a burst", "a burst then slow",
        "bursts", "pulses of a writer", "long bursts", "many short bursts",
    ],
)  # fmt: skip
def test_a_backlog_is_taken_in_full_batches(ids: list[StreamId]) -> None:
    *full, _ = sizes = batch_sizes(ids, max_events=20_000)
    assert max(sizes) <= 1.25 * 20_000
    assert sorted(full)[len(full) // 10] >= 0.8 * 20_000
    assert sum(full) / len(full) == pytest.approx(0.96 * 20_000, rel=0.1)


PARTS = st.lists(
    st.tuples(st.integers(1, 40_000), st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=6
)


# Always the same examples: an estimate from samples has outliers, and a rare one must not fail a build.
@settings(max_examples=60, deadline=None, derandomize=True)
@given(PARTS)
def test_no_batch_is_far_beyond_its_bound_and_few_are_small(parts: list[tuple[int, int, int]]) -> None:
    ids = at_times(*parts)
    sizes = batch_sizes(ids, max_events=20_000)
    assert max(sizes) <= 1.25 * 20_000
    assert len(sizes) <= 2 + len(ids) / (0.8 * 20_000)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(STREAMS, st.integers(1, 60_000), min_size=1), st.integers(1, 200_000))
def test_the_share_that_a_short_stream_leaves_goes_to_the_others(
    lengths: dict[Stream, int], max_events: int
) -> None:
    found = shares(lengths, max_events=max_events)
    assert all(1 <= found[stream] <= length for stream, length in lengths.items())
    assert sum(found.values()) <= max(max_events, len(lengths))
    if max_events >= len(lengths):
        assert sum(found.values()) > min(sum(lengths.values()), max_events) - len(lengths)
        cut = [found[stream] for stream, length in lengths.items() if found[stream] < length]
        assert not cut or max(cut) - min(cut) <= 1


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["queue", "worker"]), st.integers(0, 9)), st.integers(0, 60_000)
    )
)
def test_every_stream_gets_a_lane_and_no_lane_without_need(sizes: dict[Stream, int]) -> None:
    read_tasks = {
        stream: numbers[0]
        for stream, numbers in spread(
            sizes, dict.fromkeys(sizes, 1), Bounds(max_events=1, max_read_tasks=3)
        ).items()
    }
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
CUT = st.builds(
    lambda offset, join_rows, cuts: replace(
        offset, cuts=cuts, partitions=2 if cuts else 0, join_rows=join_rows
    ),
    OFFSETS,
    st.sampled_from([0, 40_000]),
    st.dictionaries(
        STREAMS,
        st.lists(
            st.tuples(st.tuples(st.integers(1, 2**45), st.integers(0, 9)).map(format_id), st.integers(0, 3)),
            min_size=1,
            max_size=3,
        ).map(tuple),
    ),
)


@given(OFFSETS | CUT)
def test_an_offset_survives_the_checkpoint(offset: Offset) -> None:
    text = json.dumps(offset.as_json())
    assert Offset.from_json(json.loads(text)) == offset
    assert json.dumps(Offset.from_json(json.loads(text)).as_json()) == text


@given(OFFSETS, OFFSETS | CUT)
def test_a_replay_has_the_same_read_tasks_and_tokens(start: Offset, end: Offset) -> None:
    once = plan_between(start, end)
    again = plan_between(Offset.from_json(start.as_json()), Offset.from_json(end.as_json()))
    assert once == again
    assert once.merge_token("queue") == again.merge_token("queue")
    assert once.join_token("queue") == again.join_token("queue")
    for mine, other in zip(once.read_tasks, again.read_tasks, strict=True):
        assert mine.token("queue") == other.token("queue")
        assert mine.token("queue", whole=False) == other.token("queue", whole=False)


def test_an_offset_of_an_earlier_version_keeps_its_text_its_read_tasks_and_its_tokens() -> None:
    """The tokens of a batch that an earlier version planned and this one replays."""
    text = (
        '{"at_ms": 1763251200000, "lanes": {"queue": {"0": 0, "1": 1}, "worker": {"0": 0}}, '
        '"streams": {"queue": {"0": "1763251199000-3", "1": "1763251199001-0"}, "worker": {"0": "5-5"}}}'
    )
    end = Offset.from_json(json.loads(text))
    assert json.dumps(end.as_json()) == text
    first, second = plan_between(Offset(positions={QUEUE_0: "7-0"}), end).read_tasks
    assert [first.token("queue"), first.token("worker"), second.token("queue")] == [
        "queue-66b61c55314cbb4825855f546f4749e6",
        "worker-b013321ff6bb75a481b71fc3cb2bc1d7",
        "queue-744da1c2f8691fec2b0965a991c475f2",
    ]


def test_a_cut_batch_that_was_planned_before_rows_were_joined_joins_none() -> None:
    text = (
        '{"at_ms": 5, "lanes": {"queue": {"0": 0}}, "streams": {"queue": {"0": "9-0"}}, '
        '"split": {"version": 1, "partitions": 1, "cuts": {"queue": {"0": [["7-0", 1]]}}}}'
    )
    end = Offset.from_json(json.loads(text))
    assert json.dumps(end.as_json()) == text
    assert plan_between(Offset(), end).hand_rows == 0


def test_rows_are_joined_if_several_tasks_read_and_each_hands_on_its_share() -> None:
    ids = Ids(s0=pulses(400, of=250, each=30, pause_ms=20), s1=pulses(400, of=250, each=30, pause_ms=20))
    alone = plan(ids, Offset(), max_events=1_000_000, max_read_tasks=1)
    assert (alone.join_rows, plan_between(Offset(), alone).hand_rows) == (0, 0)
    shared = plan_between(Offset(), plan(ids, Offset(), max_events=1_000_000, max_read_tasks=2))
    assert (len(shared.read_tasks), shared.hand_rows) == (2, JOIN_ROWS // 2)


def test_a_batch_of_a_newer_weir_is_refused() -> None:
    newer = {**Offset(at_ms=1).as_json(), "split": {"version": 3}}
    with pytest.raises(Misconfigured, match="a newer Weir planned"):
        Offset.from_json(newer)


def test_a_long_stream_is_cut_into_ranges_of_about_equal_size() -> None:
    ids = Ids(s0=pulses(1_600, of=250, each=30, pause_ms=20), s1=at_times((3_000, 1, 5)))
    end = plan(ids, Offset(), max_events=1_000_000, max_read_tasks=4)
    assert len(end.cuts[QUEUE_0]) == 3
    assert end.partitions == 2
    plan_of = plan_between(Offset(), end)
    assert plan_of.cut_metrics == ("queue",)
    pieces = sorted(
        (parse_id(piece.after), parse_id(piece.until), task.number)
        for task in plan_of.read_tasks
        for piece in task.ranges
        if piece.shard == 0
    )
    assert len({number for _, _, number in pieces}) == 4
    sizes = [ids.taken_between(after, until) for after, until, _ in pieces]
    assert sum(sizes) == ids.taken(Offset(), end)
    assert max(sizes) <= 1.35 * sum(sizes) / 4
    assert [after for after, _, _ in pieces[1:]] == [until for _, until, _ in pieces[:-1]]
    whole = [piece.whole for task in plan_of.read_tasks for piece in task.ranges if piece.shard == 1]
    assert whole == [True]


def test_streams_of_about_equal_length_are_not_cut() -> None:
    sizes = {("queue", shard): 100_000 + 10_000 * shard for shard in range(4)}
    assert set(parts_of(sizes, Bounds(max_events=1, max_read_tasks=2)).values()) == {1}
    assert parts_of({QUEUE_0: 20_000}, Bounds(max_events=1, max_read_tasks=8)) == {QUEUE_0: 1}
    assert parts_of({QUEUE_0: 400_000}, Bounds(max_events=1, max_read_tasks=2)) == {QUEUE_0: 2}


def test_other_ranges_have_other_tokens() -> None:
    tokens = {
        plan_between(
            Offset(positions={QUEUE_0: start}), Offset(positions={QUEUE_0: end, ("queue", 1): other})
        )
        .read_tasks[0]
        .token("queue")
        for start in ("1-0", "1-1")
        for end in ("2-0", "3-0")
        for other in ("4-0", "4-1")
    }
    assert len(tokens) == 8


def test_other_cuts_and_partitions_have_other_tokens() -> None:
    tokens = {
        plan_between(
            Offset(), Offset(positions={QUEUE_0: "9-0"}, cuts={QUEUE_0: ((cut, 1),)}, partitions=partitions)
        ).merge_token("queue")
        for cut in ("3-0", "4-0")
        for partitions in (1, 2)
    }
    assert len(tokens) == 4


def test_ids_order_by_number_and_not_by_text() -> None:
    assert is_after("10-0", "9-0")
    assert is_after("9-10", "9-9")
    assert parse_id("7") == (7, 0)
