"""Rows, gaps and a seed become points that say what they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from weir.warehouse.reading.arithmetic import drain_ms, error_rate, mean, per_second, utilization_pct
from weir.warehouse.reading.periods import Resolution, Window
from weir.warehouse.reading.series import (
    TOLD_WITHIN_MS,
    PointKind,
    Series,
    Shape,
    TimeSpan,
    build_series,
    covered_ms,
)

SHAPE = Shape(counters=("acked",), gauges=("depth",), odometers=("acked_total",), measures=("p95",))
WINDOW = Window(start_ms=100_000, end_ms=125_000, resolution=Resolution.FIVE_SECONDS, step_ms=5_000)


def row(time_ms: int, *, acked: int = 1, highest: int = 9, last: int = 4, total: int = 50) -> dict[str, Any]:
    return {
        "bucket_ms": time_ms,
        "acked": acked,
        "depth": highest,
        "last": (last,),
        "acked_total": total,
        "p95": 7.5,
    }


def series(
    *rows: dict[str, Any],
    seed: dict[str, Any] | None = None,
    gaps: Sequence[TimeSpan] = (),
    off: Sequence[TimeSpan] = (),
    known: TimeSpan | None = None,
    window: Window = WINDOW,
) -> Series:
    found = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    return build_series(window, shape=SHAPE, found=found, seed=seed, gaps=gaps, off=off, known=known)


def test_an_idle_bucket_carries_the_last_value_and_not_the_maximum() -> None:
    answer = series(row(105_000, highest=9, last=4))
    assert answer.kinds[1:] == [PointKind.MEASURED, PointKind.CARRIED, PointKind.CARRIED, PointKind.CARRIED]
    assert answer.columns["depth"][1:] == (9, 4, 4, 4)
    assert answer.columns["acked"][1:] == (1, 0, 0, 0)
    assert answer.columns["acked_total"][1:] == (50, 50, 50, 50)
    assert answer.columns["p95"][1:] == (7.5, None, None, None)


def test_what_was_before_the_first_event_is_unknown_and_not_zero() -> None:
    answer = series(row(110_000))
    assert answer.kinds == [
        PointKind.UNKNOWN,
        PointKind.UNKNOWN,
        PointKind.MEASURED,
        PointKind.CARRIED,
        PointKind.CARRIED,
    ]
    for name in SHAPE.counters + SHAPE.gauges + SHAPE.odometers + SHAPE.measures:
        assert answer.columns[name][:2] == (None, None), name
    assert set(series().kinds) == {PointKind.UNKNOWN}


def test_the_seed_fills_the_buckets_before_the_first_row() -> None:
    answer = series(row(110_000), seed=row(5_000, last=77, total=49))
    assert answer.columns["depth"] == (77, 77, 9, 4, 4)
    assert answer.columns["acked_total"][:2] == (49, 49)


def test_a_gap_is_null_and_flagged_even_where_rows_survived() -> None:
    gap = TimeSpan(start_ms=107_000, end_ms=111_000)
    answer = series(row(105_000), row(115_000), seed=row(5_000, last=77), gaps=[gap])
    assert answer.kinds[1:3] == [PointKind.UNKNOWN, PointKind.UNKNOWN]
    assert answer.columns["acked"] == (0, None, None, 1, 0)
    assert answer.columns["depth"] == (77, None, None, 9, 4)


def test_a_gap_of_one_instant_is_a_gap() -> None:
    gap = TimeSpan(start_ms=110_000, end_ms=110_000)
    kinds = series(seed=row(5_000), gaps=[gap]).kinds
    assert kinds.count(PointKind.UNKNOWN) == 1
    assert kinds[2] is PointKind.UNKNOWN


def test_a_gauge_is_not_carried_across_a_gap() -> None:
    gap = TimeSpan(start_ms=110_000, end_ms=114_000)
    answer = series(row(105_000), gaps=[gap])
    assert answer.columns["depth"][1:] == (9, None, None, None)
    assert answer.columns["acked"][1:] == (1, None, 0, 0)


def test_while_metrics_are_off_nothing_is_known_and_soon_after_only_what_is_told() -> None:
    long = Window(start_ms=100_000, end_ms=400_000, resolution=Resolution.FIVE_SECONDS, step_ms=5_000)
    off = TimeSpan(start_ms=112_000, end_ms=121_000)
    silent = series(row(110_000, last=6, total=60), seed=row(5_000, last=77), off=[off], window=long)
    last_unknown = (off.end_ms + TOLD_WITHIN_MS) // 5_000 * 5_000
    unknown = {
        time for time, kind in zip(silent.times_ms, silent.kinds, strict=True) if kind is PointKind.UNKNOWN
    }
    assert unknown == set(range(110_000, last_unknown + 1, 5_000))
    assert silent.columns["depth"][:2] == (77, 77)
    assert silent.columns["depth"][-1] == 6, "it did not change meanwhile, or it would have said so"
    assert silent.columns["acked_total"][-1] == 60
    heard = series(row(110_000), row(130_000, last=2), off=[off], window=long)
    assert heard.kinds[2:8] == [PointKind.UNKNOWN] * 4 + [PointKind.MEASURED, PointKind.UNKNOWN]
    assert heard.columns["depth"][-1] == 2


def test_dropped_events_are_forgotten_though_metrics_were_off_too() -> None:
    long = Window(start_ms=100_000, end_ms=400_000, resolution=Resolution.FIVE_SECONDS, step_ms=5_000)
    span = TimeSpan(start_ms=112_000, end_ms=121_000)
    answer = series(row(105_000), gaps=[span], off=[span], window=long)
    assert answer.columns["depth"][-1] is None


def test_what_has_not_arrived_yet_is_unknown_and_not_zero() -> None:
    known = TimeSpan(start_ms=0, end_ms=112_000)
    answer = series(row(105_000), row(120_000), seed=row(5_000), known=known)
    assert answer.kinds == [
        PointKind.CARRIED,
        PointKind.MEASURED,
        PointKind.CARRIED,
        PointKind.UNKNOWN,
        PointKind.MEASURED,
    ]


def test_what_the_tier_has_dropped_is_unknown_and_not_zero() -> None:
    answer = series(seed=row(5_000), known=TimeSpan(start_ms=112_000, end_ms=125_000))
    assert answer.columns["acked"] == (None, None, 0, 0, 0)


def test_the_points_of_a_series_are_its_columns_one_after_the_other() -> None:
    points = series(row(105_000), known=TimeSpan(start_ms=0, end_ms=112_000)).points()
    assert [point.time_ms for point in points] == [100_000, 105_000, 110_000, 115_000, 120_000]
    assert points[1].kind is PointKind.MEASURED
    assert points[1].values == {"depth": 9, "acked": 1, "acked_total": 50, "p95": 7.5}
    assert set(points[4].values.values()) == {None}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (mean(10, 0), None),
        (mean(0, 4), 0),
        (utilization_pct(8, 10), 80),
        (utilization_pct(8, 0), None),
        (utilization_pct(8, None), None),
        (per_second(10, 5_000), 2),
        (per_second(10, 0), 0),
        (error_rate(0, 0, 0, 0), None),
        (error_rate(6, 2, 1, 1), 0.4),
        (drain_ms(backlog=0, arrived=9, left=0, span_ms=1_000), 0),
        (drain_ms(backlog=10, arrived=5, left=10, span_ms=1_000), 2_000),
        (drain_ms(backlog=10, arrived=5, left=5, span_ms=1_000), math.inf),
        (drain_ms(backlog=10, arrived=0, left=0, span_ms=0), math.inf),
    ],
)
def test_figures_are_weighted_and_survive_zero(given: float | None, expected: float | None) -> None:
    assert given == expected


def test_time_that_lies_in_several_spans_counts_once() -> None:
    spans = [TimeSpan(start_ms=start, end_ms=end) for start, end in ((40, 60), (0, 12), (50, 55), (58, 70))]
    assert covered_ms(spans, start_ms=10, end_ms=65) == 2 + 25
    assert covered_ms(spans, start_ms=12, end_ms=40) == 0
    assert covered_ms([], start_ms=0, end_ms=10) == 0
