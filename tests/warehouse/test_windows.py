"""A window of every queue at once, as the evaluator sees it."""

from __future__ import annotations

import pytest

from support.history import Moment, land_moments, land_worker
from support.warehouse import NOW_MS, WarehouseRig
from weir.model.durations import DAY_MS, HOUR_MS, MINUTE_MS
from weir.model.names import EnvironmentRef
from weir.warehouse.reading.periods import Resolution
from weir.warehouse.reading.windows import Levels, frame_for

WINDOW_MS = 5 * MINUTE_MS
FRAME = frame_for(end_ms=NOW_MS, window_ms=WINDOW_MS)


@pytest.mark.parametrize(
    ("window_ms", "resolution"),
    [(5_000, "5s"), (2 * HOUR_MS, "5s"), (DAY_MS, "1m"), (7 * DAY_MS, "1h")],
)
def test_a_frame_ends_with_the_newest_bucket_of_its_tier(window_ms: int, resolution: str) -> None:
    frame = frame_for(end_ms=NOW_MS + 1, window_ms=window_ms)
    assert frame.resolution is Resolution(resolution)
    assert frame.start_ms <= NOW_MS < frame.end_ms <= NOW_MS + frame.resolution.step_ms
    assert frame.span_ms >= window_ms


async def test_levels_of_a_window_full_of_rows(rig: WarehouseRig, environment: EnvironmentRef) -> None:
    queue = environment.queue("it's \\ {q}")
    moments = [
        Moment(queue=queue, at_ms=FRAME.start_ms + number * 5_000, gauges={"queue_length": 100 + number})
        for number in range(60)
    ]
    land_moments(rig.connection, moments)
    levels = (await rig.warehouse.windows.levels([environment], [FRAME]))[FRAME]
    assert levels[queue]["backlog"] == Levels(low=100, high=159, now=159)


async def test_a_beginning_without_rows_has_the_level_that_was_carried_into_it(
    rig: WarehouseRig, environment: EnvironmentRef
) -> None:
    late, carried, silent = (environment.queue(name) for name in ("late", "carried", "silent"))
    end = Moment(queue=late, at_ms=FRAME.end_ms - 5_000, gauges={"queue_length": 900})
    before_ms = FRAME.start_ms - 60_000
    land_moments(
        rig.connection,
        [
            end,
            Moment(queue=carried, at_ms=before_ms, gauges={"queue_length": 800}),
            Moment(queue=carried, at_ms=end.at_ms, gauges={"queue_length": 900}),
            Moment(queue=silent, at_ms=before_ms, gauges={"queue_length": 700}),
        ],
    )
    levels = (await rig.warehouse.windows.levels([environment], [FRAME]))[FRAME]
    assert levels[late]["backlog"] == Levels(low=0, high=900, now=900)
    assert levels[carried]["backlog"] == Levels(low=800, high=900, now=900)
    assert levels[silent]["backlog"] == Levels(low=700, high=700, now=700)


async def test_a_queue_that_drained_within_a_bucket_was_low(
    rig: WarehouseRig, environment: EnvironmentRef
) -> None:
    queue = environment.queue("q")
    drained = Moment(
        queue=queue, at_ms=FRAME.start_ms, gauges={"queue_length": 0}, peaks={"queue_length": 500}
    )
    land_moments(rig.connection, [drained])
    levels = (await rig.warehouse.windows.levels([environment], [FRAME]))[FRAME]
    assert levels[queue]["backlog"] == Levels(low=0, high=500, now=0)


async def test_sums_and_percentiles_hold_for_the_window_alone(
    rig: WarehouseRig, environment: EnvironmentRef
) -> None:
    queue = environment.queue("q")
    land_moments(
        rig.connection,
        [
            Moment(queue=queue, at_ms=FRAME.start_ms - 5_000, counts={"acked": 99}, waits_ms=[9_999]),
            Moment(queue=queue, at_ms=FRAME.start_ms, counts={"acked": 4}, waits_ms=[10, 20]),
            Moment(queue=queue, at_ms=NOW_MS - 5_000, counts={"nacked": 1}, gauges={"queue_length": 3}),
        ],
    )
    sums = (await rig.warehouse.windows.sums([environment], [FRAME]))[FRAME][queue]
    assert (sums.counts["acked"], sums.counts["nacked"], sums.backlog) == (4, 1, 3)
    assert (sums.wait_count, sums.wait_sum_ms) == (2, 30)
    waits = (await rig.warehouse.windows.percentiles([environment], [FRAME]))[FRAME][queue]
    assert waits.p99_ms == pytest.approx(20, abs=1)
    assert await rig.warehouse.windows.sums([], [FRAME]) == {FRAME: {}}


async def test_windows_asked_together_answer_as_each_alone(
    rig: WarehouseRig, environment: EnvironmentRef
) -> None:
    moments = [
        Moment(
            queue=environment.queue(f"q{seconds % 2}"),
            at_ms=NOW_MS - seconds * 1_000,
            counts={"acked": seconds},
            gauges={"queue_length": seconds},
            waits_ms=[seconds * 10],
        )
        for seconds in (7, 40, 130, 175, 500, 899, 1_000, 4_000)
    ]
    land_moments(rig.connection, moments)
    windows = rig.warehouse.windows
    frames = [
        frame_for(end_ms=NOW_MS, window_ms=window_ms)
        for window_ms in (MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, 6 * HOUR_MS, 7 * DAY_MS)
    ]
    for read in (windows.levels, windows.sums, windows.percentiles):
        together = await read([environment], frames)
        assert together == {frame: (await read([environment], [frame]))[frame] for frame in frames}
    sums = await windows.sums([environment], frames)
    even = environment.queue("q0")
    assert [sums[frame][even].counts["acked"] for frame in frames] == [40, 170, 670, 5_670, 5_670]


async def test_the_worst_process_stands_for_all(lone: WarehouseRig) -> None:
    assert await lone.warehouse.windows.worker_lag(FRAME) is None
    for worker, lag_us in (("calm", 1_000), ("late", 90_000)):
        land_worker(
            lone.connection,
            at_ms=NOW_MS - 5_000,
            worker_id=worker,
            samples=1,
            event_loop_lag_us_sum=lag_us,
            event_loop_lag_us_max=lag_us,
        )
    assert await lone.warehouse.windows.worker_lag(FRAME) == Levels(low=0, high=90, now=90)
