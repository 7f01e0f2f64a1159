"""Rows of an earlier release after the migration: still there, null where they have nothing, told apart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from uuid import uuid4

import pytest

from support.history import Moment, land_moments, landing_table, of_earlier_release
from support.urls import with_database
from support.warehouse import NOW_MS
from support.warehouse import WarehouseRig as Rig
from weir.control.migrate import migrate, read_migrations
from weir.model.durations import HOUR_MS, MINUTE_MS
from weir.model.names import EnvironmentRef, QueueRef
from weir.pipeline.definition import QUEUE_METRIC
from weir.testing.clocks import ManualClock
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.migrate import PACKAGE, ClickHouseMigrations, drop_warehouse, migrate_warehouse
from weir.warehouse.percentiles import Sketch
from weir.warehouse.reading.digests import DigestReader
from weir.warehouse.reading.series import Point, PointKind
from weir.warehouse.reading.top import By
from weir.warehouse.reading.windows import frame_for
from weir.warehouse.statements import split_statements

SKETCHED = 7
"""The first migration with a sketch; releases before it kept a T-Digest."""
OLD_MS, BOTH_MS, NEW_MS = (NOW_MS - minutes * MINUTE_MS for minutes in (20, 10, 5))
OLD_WAITS, NEW_WAITS = [1_000] * 98 + [40_000, 50_000], [200] * 90 + [3_000] * 10


@pytest.fixture
def queue(environment: EnvironmentRef) -> QueueRef:
    return environment.queue("old and new")


@pytest.fixture
async def rig(clickhouse_url: str, queue: QueueRef) -> AsyncIterator[Rig]:
    """Rows at `OLD_MS` and `BOTH_MS` from before the migration, at `BOTH_MS` and `NEW_MS` from after it."""
    name = f"t_{uuid4().hex}"
    url = with_database(clickhouse_url, name)
    with closing(ClickHouseConnection(clickhouse_url)) as connection:
        connection.command(f"CREATE DATABASE {name}")
    before = [one for one in read_migrations(PACKAGE) if one.number < SKETCHED]
    with closing(ClickHouseConnection(url)) as connection:
        await migrate(ClickHouseMigrations(connection), before)
    rig = Rig(url)
    old = of_earlier_release(
        landing_table([moment(queue, OLD_MS, 4, OLD_WAITS), moment(queue, BOTH_MS, 6, OLD_WAITS)])
    )
    rig.connection.insert(QUEUE_METRIC.landing, old, token="old")
    await migrate_warehouse(url)
    land_moments(
        rig.connection, [moment(queue, BOTH_MS + 1, 9, NEW_WAITS), moment(queue, NEW_MS, 3, NEW_WAITS)]
    )
    yield rig
    await rig.aclose()
    await drop_warehouse(url)


def moment(queue: QueueRef, at_ms: int, depth: int, waits: list[int]) -> Moment:
    return Moment(
        queue=queue,
        at_ms=at_ms,
        counts={"dequeued": len(waits)},
        gauges={"queue_length": depth, "environment_length": depth, "environment_running": 1},
        lows={"queue_length": depth - 2, "environment_length": depth - 2},
        waits_ms=waits,
    )


def measured(points: list[Point]) -> dict[int, Point]:
    return {point.time_ms: point for point in points if point.kind is PointKind.MEASURED}


async def test_each_part_of_a_window_says_its_sketch(rig: Rig, queue: QueueRef) -> None:
    history = await rig.warehouse.history.of_queue(queue, rig.last(30 * MINUTE_MS))
    assert [(part.span.start_ms, part.sketch) for part in history.sketches] == [
        (OLD_MS, Sketch.TDIGEST), (BOTH_MS, Sketch.BOTH), (NEW_MS, Sketch.DDSKETCH),
    ]  # fmt: skip
    old, both, new = measured(history.series.points()).values()
    assert (old.values["wait_p50_ms"], old.values["wait_max_ms"]) == (1_000, 50_000)
    assert new.values["wait_p99_ms"] == pytest.approx(3_000, rel=0.01)
    # Of all 200 waits p50 is 200 ms or 1 s; the greater percentile of the two kinds is not under it.
    assert 1_000 <= both.values["wait_p50_ms"] <= both.values["wait_p99_ms"] <= 50_000


async def test_old_rows_have_no_minimum_and_no_mean(rig: Rig, queue: QueueRef) -> None:
    history = await rig.warehouse.history.of_queue(queue, rig.last(30 * MINUTE_MS))
    points = measured(history.series.points())
    shown = {
        time_ms: tuple(
            point.values[name] for name in ("queue_length", "min_queue_length", "mean_queue_length")
        )
        for time_ms, point in points.items()
    }
    # In the bucket of both, the mean is that of the events that have one.
    assert shown == {OLD_MS: (4, None, None), BOTH_MS: (9, 7, 9), NEW_MS: (3, 1, 3)}
    last = history.series.points()[-1]
    assert (last.kind, last.values["min_queue_length"], last.values["mean_queue_length"]) == ("carried", 3, 3)
    environment = await rig.warehouse.history.of_environment(queue.scope, rig.last(30 * MINUTE_MS))
    columns = environment.series.columns
    at = [environment.series.times_ms.index(time_ms) for time_ms in (OLD_MS, BOTH_MS, NEW_MS)]
    assert [columns["min_environment_length"][index] for index in at] == [None, 7, 1]
    assert [columns["mean_environment_running"][index] for index in at] == [None, 1, 1]


@pytest.mark.parametrize("parts", ["many", "compact", "wide"])
async def test_merging_old_and_new_rows_changes_no_answer(rig: Rig, queue: QueueRef, parts: str) -> None:
    for tier in ("5s", "1m", "1h") if parts != "many" else ():
        smallest = 0 if parts == "wide" else 10_000_000
        rig.connection.command(
            f"ALTER TABLE queue_metrics_{tier} MODIFY SETTING min_bytes_for_wide_part = {smallest}"
        )
        rig.connection.command(f"OPTIMIZE TABLE queue_metrics_{tier} FINAL")
    for period_ms in (30 * MINUTE_MS, 12 * HOUR_MS, 90 * 24 * HOUR_MS):
        history = await rig.warehouse.history.of_queue(queue, rig.last(period_ms))
        assert sum(filter(None, history.series.columns["wait_count"])) == 400
        assert min(filter(None, history.series.columns["min_queue_length"])) == 1
        assert max(filter(None, history.series.columns["wait_p99_ms"])) >= 40_000
        assert Sketch.BOTH in {part.sketch for part in history.sketches}
        assert not any(history.series.columns["cancelled"])
    rows = rig.connection.rows("SELECT sum(cancelled) AS n, max(cancelled_total) AS total FROM queue_ledger")
    assert rows == [{"n": 0, "total": 0}]


async def test_rankings_and_alert_windows_join_both(rig: Rig, queue: QueueRef) -> None:
    (totals,) = await rig.warehouse.top.of(queue.scope, rig.last(HOUR_MS), by=By.WAIT_P99, limit=5)
    assert totals.sketch is Sketch.BOTH
    assert totals.percentiles_ms is not None
    assert 3_000 <= totals.percentiles_ms[2] <= 50_000
    frame = frame_for(end_ms=NOW_MS, window_ms=6 * MINUTE_MS)
    waits = (await rig.warehouse.windows.percentiles([queue.scope], [frame]))[frame][queue]
    assert (waits.wait_count, waits.p50_ms) == (100, pytest.approx(200, rel=0.01))


async def test_the_migration_can_run_twice(rig: Rig, queue: QueueRef) -> None:
    (migration,) = [one for one in read_migrations(PACKAGE) if one.number == SKETCHED]
    before = (await rig.warehouse.history.of_queue(queue, rig.last(HOUR_MS))).series.columns
    for statement in split_statements(migration.text):
        rig.connection.command(statement)
    assert (await rig.warehouse.history.of_queue(queue, rig.last(HOUR_MS))).series.columns == before
    land_moments(rig.connection, [moment(queue, NEW_MS + 1, 8, NEW_WAITS)])
    after = (await rig.warehouse.history.of_queue(queue, rig.last(HOUR_MS))).series.columns
    assert sum(filter(None, after["wait_count"])) == 500


async def test_a_release_from_before_can_still_insert(rig: Rig, queue: QueueRef) -> None:
    """While processes are replaced one by one, its rows are null where it has nothing."""
    at_ms = NOW_MS - 2 * MINUTE_MS
    rows = of_earlier_release(landing_table([moment(queue, at_ms, 5, NEW_WAITS)]))
    rig.connection.insert(QUEUE_METRIC.landing, rows, token="late")
    history = await rig.warehouse.history.of_queue(queue, rig.last(30 * MINUTE_MS))
    point = measured(history.series.points())[at_ms]
    assert (point.values["queue_length"], point.values["mean_queue_length"]) == (5, None)
    assert point.values["wait_p50_ms"] == pytest.approx(200, rel=0.01)


@pytest.mark.parametrize("smallest_wide_part", [0, 10_000_000])
async def test_only_tables_with_old_rows_are_asked_for_digests(
    rig: Rig, queue: QueueRef, smallest_wide_part: int
) -> None:
    setting = f"MODIFY SETTING min_bytes_for_wide_part = {smallest_wide_part}"
    for table in ("queue_metrics_5s", "environment_metrics_5s"):
        rig.connection.command(f"ALTER TABLE {table} {setting}")
    rig.connection.command("TRUNCATE TABLE environment_metrics_5s")
    land_moments(rig.connection, [moment(queue, NEW_MS + 1, 8, NEW_WAITS)])
    rig.connection.command("OPTIMIZE TABLE queue_metrics_5s FINAL")
    clock = ManualClock(NOW_MS)
    digests = DigestReader(rig.warehouse.reader, clock=clock)
    assert await digests.in_table("queue_metrics_5s")
    assert not await digests.in_table("environment_metrics_5s")
    rig.connection.command("TRUNCATE TABLE queue_metrics_5s")
    assert await digests.in_table("queue_metrics_5s")
    clock.advance(HOUR_MS)
    assert not await digests.in_table("queue_metrics_5s")
