"""Questions to a real warehouse: series, rankings, processes, and nothing of another tenant."""

from __future__ import annotations

import math
from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest

from support.history import Moment, land_gap, land_lags, land_moments, land_worker
from support.warehouse import NOW_MS
from support.warehouse import WarehouseRig as Rig
from weir.errors import InvalidInput, WarehouseUnavailable
from weir.model.durations import HOUR_MS, MINUTE_MS
from weir.model.names import EnvironmentRef, QueueRef
from weir.telemetry.events import FINAL_COUNTERS, QUEUE_COUNTERS
from weir.telemetry.process_counts import ProcessCounts
from weir.warehouse.reading import workers
from weir.warehouse.reading.periods import Resolution, Window
from weir.warehouse.reading.questions import ask_tenant, operator_queries, tenant_queries
from weir.warehouse.reading.reader import Question, Reader
from weir.warehouse.reading.series import PointKind
from weir.warehouse.reading.top import By
from weir.warehouse.reading.workers import LAG_PERCENTILES, Health
from weir.warehouse.tables import GapKind


@pytest.fixture
def queue(environment: EnvironmentRef) -> QueueRef:
    return environment.queue('it\'s \\ a "queue" {x} :*')


async def test_a_series_has_counts_maxima_percentiles_and_odometers(rig: Rig, queue: QueueRef) -> None:
    at_ms = NOW_MS - 60_000
    waits = range(1, 101)
    first = Moment(
        queue=queue,
        at_ms=at_ms,
        counts={"enqueued": 3, "dequeued": 100},
        gauges={"queue_length": 7, "queue_limit": 10, "running": 4},
        peaks={"queue_length": 90},
        odometers={"enqueued": 1_003},
        waits_ms=list(waits),
    )
    land_moments(
        rig.connection, [first, replace(first, at_ms=at_ms + 1_000, counts={"enqueued": 2}, waits_ms=())]
    )
    history = await rig.warehouse.history.of_queue(queue, rig.last(30 * MINUTE_MS))
    assert len(history.series) == 360
    measured = [point for point in history.series.points() if point.kind is PointKind.MEASURED]
    assert len(measured) == 1
    values = measured[0].values
    assert (values["enqueued"], values["dequeued"], values["queue_length"]) == (5, 100, 90)
    assert values["enqueued_total"] == 1_003
    assert values["wait_mean_ms"] == 50.5
    assert values["wait_p95_ms"] == pytest.approx(95, abs=1)
    after = history.series.points()[-1]
    assert (after.kind, after.values["queue_length"], after.values["enqueued"]) == (PointKind.CARRIED, 7, 0)


@pytest.mark.parametrize("sequences", [(1, 2), (2, 1), (0, 70_000)])
async def test_of_two_events_of_one_millisecond_the_later_is_carried(
    rig: Rig, queue: QueueRef, sequences: tuple[int, int]
) -> None:
    later = {"queue_length": 3, "running": 2, "queue_limit": 8, "paused": 1, "oldest_age_ms": 2**33}
    earlier = dict.fromkeys(later, 5)
    for sequence in sequences:
        gauges = later if sequence == max(sequences) else earlier
        land_moments(
            rig.connection, [Moment(queue=queue, at_ms=NOW_MS - 60_000, gauges=gauges, sequence=sequence)]
        )
    columns = (await rig.warehouse.history.of_queue(queue, rig.last(30 * MINUTE_MS))).series.columns
    assert {name: columns[name][-1] for name in later} == later


async def test_a_row_split_over_several_inserts_is_one_point(rig: Rig, queue: QueueRef) -> None:
    for number in range(3):
        land_moments(
            rig.connection, [Moment(queue=queue, at_ms=NOW_MS - 60_000 + number, counts={"acked": 1})]
        )
    history = await rig.warehouse.history.of_queue(queue, rig.last(30 * MINUTE_MS))
    assert [
        point.values["acked"] for point in history.series.points() if point.kind is PointKind.MEASURED
    ] == [3]


@pytest.mark.parametrize("idle_ms", [3 * MINUTE_MS + 30 * MINUTE_MS, 30 * HOUR_MS, 100 * 24 * HOUR_MS])
async def test_the_seed_comes_from_before_the_window_however_long_ago(
    rig: Rig, queue: QueueRef, idle_ms: int
) -> None:
    moment = Moment(queue=queue, at_ms=NOW_MS - idle_ms, gauges={"queue_length": 500}, odometers={"acked": 9})
    land_moments(rig.connection, [moment])
    history = await rig.warehouse.history.of_queue(queue, rig.last(30 * MINUTE_MS))
    assert set(history.series.columns["queue_length"]) == {500}
    assert set(history.series.columns["acked_total"]) == {9}


async def test_a_day_and_a_year_hold_the_same_sums(rig: Rig, queue: QueueRef) -> None:
    moments = [
        Moment(queue=queue, at_ms=NOW_MS - number * 7_000, counts={"acked": number})
        for number in range(1, 200)
    ]
    land_moments(rig.connection, moments)
    for period_ms in (30 * MINUTE_MS, 24 * HOUR_MS, 7 * 24 * HOUR_MS, 90 * 24 * HOUR_MS):
        history = await rig.warehouse.history.of_queue(queue, rig.last(period_ms))
        assert sum(filter(None, history.series.columns["acked"])) == sum(range(1, 200))
        assert len(history.series) <= 1_500


async def test_a_gap_shows_as_unknown(lone: Rig, queue: QueueRef) -> None:
    land_moments(lone.connection, [Moment(queue=queue, at_ms=NOW_MS - 600_000, gauges={"queue_length": 3})])
    land_gap(lone.connection, start_ms=NOW_MS - 300_000, end_ms=NOW_MS - 290_000)
    points = (await lone.warehouse.history.of_queue(queue, lone.last(30 * MINUTE_MS))).series.points()
    unknown = [point for point in points if point.kind is PointKind.UNKNOWN]
    lost = [point.time_ms for point in unknown if point.time_ms >= NOW_MS - 600_000]
    assert lost == [NOW_MS - 300_000, NOW_MS - 295_000]
    assert all(value is None for point in unknown for value in point.values.values())


async def test_events_on_their_way_make_the_newest_points_unknown(lone: Rig, queue: QueueRef) -> None:
    land_moments(lone.connection, [Moment(queue=queue, at_ms=NOW_MS - 600_000, gauges={"queue_length": 3})])
    lone.tails.by_shard = {0: (NOW_MS - 600_000, 0)}
    idle = await lone.warehouse.history.of_queue(queue, lone.last(30 * MINUTE_MS))
    assert idle.complete_until_ms == NOW_MS
    assert idle.series.kinds[-1] is PointKind.CARRIED
    lone.tails.by_shard = {0: (NOW_MS - 1_000, 0)}
    behind = await lone.warehouse.history.of_queue(queue, lone.last(30 * MINUTE_MS))
    assert behind.complete_until_ms == NOW_MS - 600_000
    assert behind.series.kinds[-3:] == [PointKind.UNKNOWN] * 3


async def test_what_came_after_telemetry_was_switched_off_is_unknown(lone: Rig, queue: QueueRef) -> None:
    land_moments(lone.connection, [Moment(queue=queue, at_ms=NOW_MS - 600_000, gauges={"queue_length": 3})])
    lone.tails.by_shard = {0: (NOW_MS - 600_000, 0)}
    lone.tails.off_since_ms = NOW_MS - 20_000
    off = await lone.warehouse.history.of_queue(queue, lone.last(30 * MINUTE_MS))
    assert off.complete_until_ms == NOW_MS - 20_000
    assert off.series.kinds[-5:] == [PointKind.CARRIED] + [PointKind.UNKNOWN] * 4


async def test_the_reason_is_told_while_metrics_are_off_and_afterwards(lone: Rig, queue: QueueRef) -> None:
    land_moments(lone.connection, [Moment(queue=queue, at_ms=NOW_MS - 1_200_000, gauges={"queue_length": 3})])
    span = {"start_ms": NOW_MS - 900_000, "end_ms": NOW_MS - 600_000}
    land_gap(lone.connection, **span, kind=GapKind.SWITCHED_OFF)
    lone.tails.off_since_ms = NOW_MS - 60_000
    history = await lone.warehouse.history.of_queue(queue, lone.last(30 * MINUTE_MS))
    before, now = history.gaps
    assert before.reason.startswith("metrics were switched off from 20")
    assert now.reason.startswith("metrics are switched off since 20")
    assert "to" not in now.reason.split()
    shown = dict(zip(history.series.times_ms, history.series.columns["queue_length"], strict=True))
    assert shown[NOW_MS - 905_000] == 3
    assert shown[NOW_MS - 900_000] is None
    assert shown[NOW_MS - 600_000] is None, "it may not have been told yet"
    assert shown[NOW_MS - 65_000] == 3, "every queue that changed has told so by now"
    assert shown[NOW_MS - 60_000] is None


@pytest.mark.parametrize("kind", list(GapKind))
async def test_a_value_from_before_the_window_does_not_jump_over_dropped_events(
    lone: Rig, queue: QueueRef, kind: GapKind
) -> None:
    land_moments(lone.connection, [Moment(queue=queue, at_ms=NOW_MS - 7_200_000, gauges={"queue_length": 3})])
    land_gap(lone.connection, start_ms=NOW_MS - 3_700_000, end_ms=NOW_MS - 3_650_000, kind=kind)
    history = await lone.warehouse.history.of_queue(queue, lone.last(30 * MINUTE_MS))
    assert set(history.series.columns["queue_length"]) == {3 if kind is GapKind.SWITCHED_OFF else None}


async def test_a_sparkline_shows_no_depth_while_metrics_were_off(
    lone: Rig, queue: QueueRef, environment: EnvironmentRef
) -> None:
    land_moments(lone.connection, [Moment(queue=queue, at_ms=NOW_MS - 1_500_000, gauges={"queue_length": 3})])
    land_gap(lone.connection, start_ms=NOW_MS - 900_000, end_ms=NOW_MS - 600_000, kind=GapKind.SWITCHED_OFF)
    lines = await lone.warehouse.sparklines.of(environment, lone.last(30 * MINUTE_MS))
    assert lines[queue.queue] == [None] * 5 + [3] * 10 + [None] * 5 + [3] * 10


async def test_an_environment_adds_its_queues_up(rig: Rig, environment: EnvironmentRef) -> None:
    for number in range(3):
        land_moments(
            rig.connection,
            [
                Moment(
                    queue=environment.queue(f"q{number}"),
                    at_ms=NOW_MS - 60_000 + number,
                    counts={"acked": 10},
                    gauges={"environment_length": 40 + number, "environment_limit": 5},
                    waits_ms=[10 * number],
                )
            ],
        )
    history = await rig.warehouse.history.of_environment(environment, rig.last(2 * HOUR_MS))
    measured = next(point for point in history.series.points() if point.kind is PointKind.MEASURED)
    assert (measured.values["acked"], measured.values["wait_mean_ms"]) == (30, 10)
    assert history.series.points()[-1].values["environment_length"] == 42


async def test_queues_can_be_ranked_by_every_figure(rig: Rig, environment: EnvironmentRef) -> None:
    moments = [
        Moment(
            queue=environment.queue(f"q{number}"),
            at_ms=NOW_MS - 60_000,
            counts={**dict.fromkeys(QUEUE_COUNTERS, number * number), "acked": number},
            gauges={"queue_length": number, "running": number, "queue_limit": 10, "oldest_age_ms": number},
            waits_ms=[100 * number] * 3,
        )
        for number in range(1, 5)
    ]
    land_moments(rig.connection, moments)
    for by in By:
        ranked = await rig.warehouse.top.of(environment, rig.last(24 * HOUR_MS), by=by, limit=2)
        assert [totals.queue for totals in ranked] == ["q4", "q3"], by
        assert (ranked[0].utilization_pct, ranked[0].wait_mean_ms) == (40, 400)


async def test_the_rate_in_a_ranking_is_over_the_time_that_was_read(
    shared_url: str, environment: EnvironmentRef
) -> None:
    rig = Rig(shared_url, now_ms=NOW_MS - NOW_MS % MINUTE_MS + 30_000)
    now_ms = rig.clock.now_ms()
    land_moments(
        rig.connection,
        [
            Moment(queue=environment.queue("q"), at_ms=now_ms - ago_ms, counts={"acked": 10})
            for ago_ms in range(1_000, 120_000, 5_000)
        ],
    )
    (totals,) = await rig.warehouse.top.of(environment, rig.last(MINUTE_MS), by=By.ACKED, limit=1)
    assert totals.acked_per_s == pytest.approx(2.0, rel=0.1)
    await rig.aclose()


async def test_cancelled_messages_make_a_backlog_smaller(rig: Rig, environment: EnvironmentRef) -> None:
    at_ms = NOW_MS - 2 * HOUR_MS
    moments = [
        Moment(queue=environment.queue(name), at_ms=at_ms, counts=counts, gauges={"queue_length": 10})
        for name, counts in (("left", {"enqueued": 5, "cancelled": 8}), ("stays", {"enqueued": 5}))
    ]
    land_moments(rig.connection, moments)
    start_ms = at_ms - at_ms % HOUR_MS
    over = Window(
        start_ms=start_ms, end_ms=start_ms + HOUR_MS, resolution=Resolution.MINUTE, step_ms=MINUTE_MS
    )
    left, stays = await rig.warehouse.top.of(environment, over, by=By.CANCELLED, limit=2)
    assert (left.queue, left.counters["cancelled"]) == ("left", 8)
    assert left.drain_ms is not None
    assert (left.drain_ms < math.inf, stays.drain_ms) == (True, math.inf)


async def test_no_drain_time_is_told_while_the_newest_events_have_not_landed(
    lone: Rig, environment: EnvironmentRef
) -> None:
    at_ms = NOW_MS - 2 * MINUTE_MS
    moment = Moment(
        queue=environment.queue("q"), at_ms=at_ms, counts={"acked": 5}, gauges={"queue_length": 10}
    )
    land_moments(lone.connection, [moment])
    lone.tails.by_shard = {0: (NOW_MS - 1_000, 0)}
    (totals,) = await lone.warehouse.top.of(environment, lone.last(HOUR_MS), by=By.ACKED, limit=1)
    assert (totals.queue_length_last, totals.drain_ms) == (10, None)


@pytest.mark.parametrize("counter", FINAL_COUNTERS)
async def test_all_that_left_counts_for_the_pace(rig: Rig, queue: QueueRef, counter: str) -> None:
    land_moments(
        rig.connection,
        [Moment(queue=queue, at_ms=NOW_MS - 1_000, counts={counter: 50}, gauges={"queue_length": 10})],
    )
    environment = queue.scope
    found = await rig.warehouse.flows.paces(environment, [queue.queue], end_ms=NOW_MS)
    assert sum(found[queue.queue].left) == 50
    everywhere = await rig.warehouse.windows.paces([environment], end_ms=NOW_MS)
    assert everywhere[queue].leaving > 0


async def test_a_ranking_of_none_or_too_many_is_refused(rig: Rig, environment: EnvironmentRef) -> None:
    for limit in (0, -1, 1_001):
        with pytest.raises(InvalidInput):
            await rig.warehouse.top.of(environment, rig.last(HOUR_MS), by=By.ACKED, limit=limit)


async def test_nothing_of_another_tenant_is_seen(rig: Rig, environment: EnvironmentRef) -> None:
    others = [
        replace(environment, organization="other"),
        replace(environment, project="other"),
        replace(environment, environment="other"),
    ]
    moments = [Moment(queue=other.queue("q"), at_ms=NOW_MS - 60_000, counts={"acked": 1}) for other in others]
    land_moments(rig.connection, moments)
    window = rig.last(30 * MINUTE_MS)
    queue_history = await rig.warehouse.history.of_queue(environment.queue("q"), window)
    environment_history = await rig.warehouse.history.of_environment(environment, window)
    for history in (queue_history, environment_history):
        assert set(history.series.kinds) == {PointKind.UNKNOWN}
    assert not await rig.warehouse.history.has_queue(environment.queue("q"))
    assert await rig.warehouse.top.of(environment, window, by=By.ACKED, limit=10) == []


def test_every_tenant_query_names_the_tenant_wherever_it_reads() -> None:
    assert tenant_queries()
    for query in tenant_queries().values():
        assert query.text.count("$TENANT") == query.text.count("FROM {") >= 1


def test_a_caller_cannot_bring_a_tenant_of_its_own(environment: EnvironmentRef) -> None:
    with pytest.raises(ValueError, match="scope"):
        ask_tenant("queue_series", environment, organization="other")


async def test_every_query_can_be_explained_on_a_migrated_warehouse(
    rig: Rig, environment: EnvironmentRef
) -> None:
    defaults = {
        "table": "queue_metrics_5s",
        "hours": "queue_metrics_1h",
        "step_s": 5,
        "step_ms": 5_000,
        "start_s": 1,
        "end_s": 2,
        "split_s": 1,
        "now_s": 1,
        "slot_s": 1,
        "lookback_s": 0,
        "queue": "q",
        "queues": ["q"],
        "by": "acked",
        "limit": 1,
        "worker_id": "w",
        "worker_ids": [],
        "everyone": 0,
        "uncounted_ids": [],
        "table_name": "queue_metrics_5s",
        "first_s": 0,
        "starts_s": [60],
        "before": 1,
        "drift_table": "environment_drift",
        "environments": [("o", "p", "e")],
        "message_id": str(UUID(int=1)),
        "key": "k",
        "outcomes": ["acked"],
        "from_ms": 0,
        "to_ms": 1,
        "from_s": 0,
        "to_s": 1,
        "before_ms": 1,
        "before_id": str(UUID(int=1)),
        "after_ms": 0,
        "after_number": 0,
        "until_ms": 1,
        "until_number": 1,
    }
    tables = {
        "fairness": "message_lives",
        "keys_": "message_lives",
        "life_": "message_lives",
        "lives_": "message_lives",
        "log_": "message_log",
        "environment_": "environment_metrics_5s",
        "worker_lag": "worker_lag_metrics_5s",
        "worker_queue": "worker_lag_metrics_5s",
        "own_queue_lags": "worker_lag_metrics_5s",
        "worker": "worker_metrics_5s",
        "window_worker": "worker_metrics_5s",
    }
    queries = [
        *tenant_queries().items(), *operator_queries().items(),
        *tenant_queries(digests=True).items(), *operator_queries(digests=True).items(),
    ]  # fmt: skip
    for name, query in queries:
        table = next((table for stem, table in tables.items() if name.startswith(stem)), defaults["table"])
        hours = "environment_metrics_1h" if name.startswith("environment_") else defaults["hours"]
        parameters = {**defaults, "table": table, "hours": hours}
        parameters |= {"organization": "o", "project": "p", "environment": "e"}
        if name == "environment_drifting_queues":
            parameters["drift_table"] = "queue_drift"
        sql = query.text.replace(
            "$TENANT", ask_tenant("queue_series", environment).sql.split("WHERE ")[1].split(" AND queue")[0]
        )
        used = {key: value for key, value in parameters.items() if f"{{{key}:" in sql}
        assert await rig.warehouse.reader.ask(Question(sql=f"EXPLAIN {sql}", parameters=used))


async def test_processes_are_weighted_by_their_samples(lone: Rig) -> None:
    land_worker(
        lone.connection,
        at_ms=NOW_MS - 7_000,
        worker_id="w1",
        samples=1,
        event_loop_lag_us_sum=9_000,
        event_loop_lag_us_max=9_000,
        free_slots_sum=4,
        free_slots_min=4,
        last_pool_size=5,
        pushes=50,
        lag_count=1,
        lag_ms_sum=100,
        lag_ms_max=100,
    )
    land_worker(
        lone.connection,
        at_ms=NOW_MS - 6_000,
        worker_id="w1",
        samples=3,
        event_loop_lag_us_sum=3_000,
        event_loop_lag_us_max=1_500,
        free_slots_sum=12,
        free_slots_min=2,
        last_pool_size=5,
        lag_count=9,
        lag_ms_sum=0,
    )
    land_worker(lone.connection, at_ms=NOW_MS - 120_000, worker_id="w2", samples=1, pushes=1, role="worker")
    summaries = {
        item.worker_id: item
        for item in await lone.warehouse.workers.summaries(
            lone.last(10 * MINUTE_MS), worker_ids=["w1", "w2", "w3"]
        )
    }
    first = summaries["w1"]
    assert first.figures["event_loop_lag_mean_ms"] == 3
    assert (first.figures["lag_mean_ms"], first.figures["lag_max_ms"]) == (10, 100)
    assert (first.figures["free_slots_mean"], first.figures["free_slots_min"]) == (4, 2)
    assert first.health is Health.HEALTHY
    assert summaries["w2"].health is Health.SILENT
    series = await lone.warehouse.workers.series(lone.last(10 * MINUTE_MS), worker_ids=["w1", "w2"])
    assert sum(point.values["pushes"] or 0 for point in series) == 51
    busy = next(point for point in series if point.values["pushes"] == 50)
    assert busy.values["pushes_per_s"] == 10
    alone = await lone.warehouse.workers.series(lone.last(10 * MINUTE_MS), worker_ids=["w2"])
    assert sum(point.values["pushes"] or 0 for point in alone) == 1


NASTY = {
    "few": [3, 9, 1_000],
    "equal": [700] * 200,
    "two humps split at the median": [40] * 500 + [90_000] * 500,
    "two humps split at p95": [100 + number for number in range(950)] + [60_000] * 50,
    "two humps split at p99": [100] * 990 + [1_000_000] * 10,
    "heavy tail": [int(1.013**number) for number in range(1_500)],
    "nothing waited": [0] * 50,
}


@pytest.mark.parametrize("lags_ms", NASTY.values(), ids=NASTY)
async def test_percentiles_of_lags_are_within_one_percent_in_every_tier(
    lone: Rig, environment: EnvironmentRef, lags_ms: list[int]
) -> None:
    queues = [environment.queue("a"), environment.queue("b"), None]
    for number, queue in enumerate(queues):
        land_lags(
            lone.connection, at_ms=NOW_MS - 6_000, worker_id="w", queue=queue, lags_ms=lags_ms[number::3]
        )
    land_worker(lone.connection, at_ms=NOW_MS - 6_000, worker_id="w", samples=1)
    expected = np.percentile(lags_ms, [50, 95, 99], method="inverted_cdf")
    found = []
    for resolution in Resolution:
        step_ms = resolution.step_ms
        start_ms = (NOW_MS - 6_000) // step_ms * step_ms
        window = Window(start_ms=start_ms, end_ms=start_ms + step_ms, resolution=resolution, step_ms=step_ms)
        (summary,) = await lone.warehouse.workers.summaries(window, worker_ids=None)
        found.append([summary.figures[name] for name in LAG_PERCENTILES])
        series = await lone.warehouse.workers.series(window, worker_ids=["w"])
        (point,) = [one for one in series if one.values["lag_p50_ms"] is not None]
        assert [point.values[name] for name in LAG_PERCENTILES] == found[-1]
    assert found[0] == found[1] == found[2]
    assert found[0] == pytest.approx(list(expected), rel=0.01, abs=0.5)


async def test_lags_are_told_by_queue_and_an_environment_sees_its_own(
    lone: Rig, environment: EnvironmentRef
) -> None:
    other = replace(environment, environment="another")
    for queue, lags_ms in (
        (environment.queue("slow"), [100, 300]),
        (environment.queue("busy"), [1, 1, 1]),
        (other.queue("theirs"), [5]),
        (None, [7]),
    ):
        land_lags(lone.connection, at_ms=NOW_MS - 6_000, worker_id="w", queue=queue, lags_ms=lags_ms)
    land_lags(lone.connection, at_ms=NOW_MS, worker_id="v", queue=environment.queue("slow"), lags_ms=[9])
    window = lone.last(10 * MINUTE_MS)
    own = await lone.warehouse.workers.queue_lags(window, worker_id="w", environment=environment)
    assert [(one.queue, one.pops, one.lag_mean_ms, one.lag_max_ms) for one in own] == [
        (environment.queue("busy"), 3, 1, 1),
        (environment.queue("slow"), 2, 200, 300),
    ]
    assert own[1].percentiles_ms["lag_p99_ms"] == pytest.approx(300, rel=0.01)
    everything = await lone.warehouse.workers.queue_lags(window, worker_id="w", environment=None)
    assert {one.queue and one.queue.queue for one in everything} == {"busy", "slow", "theirs", None}


@pytest.mark.parametrize("everywhere", [False, True], ids=["a tenant", "an operator"])
async def test_of_too_many_queues_a_process_tells_the_lags_of_the_busiest(
    lone: Rig, environment: EnvironmentRef, everywhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MAX_LAG_QUEUES", 2)
    for name, pops in (("idle", 1), ("busiest", 3), ("busy", 2)):
        land_lags(
            lone.connection,
            at_ms=NOW_MS - 6_000,
            worker_id="w",
            queue=environment.queue(name),
            lags_ms=[5] * pops,
        )
    found = await lone.warehouse.workers.queue_lags(
        lone.last(10 * MINUTE_MS), worker_id="w", environment=None if everywhere else environment
    )
    assert [one.queue and one.queue.queue for one in found] == ["busiest", "busy"]


async def test_a_process_is_not_called_silent_when_telemetry_is_behind(lone: Rig) -> None:
    land_worker(lone.connection, at_ms=NOW_MS - 120_000, worker_id="w", samples=1, free_slots_min=1)
    lone.tails.by_shard = {0: (NOW_MS - 1, 0)}
    (summary,) = await lone.warehouse.workers.summaries(lone.last(10 * MINUTE_MS), worker_ids=["w"])
    assert summary.health is Health.HEALTHY


async def test_a_warehouse_out_of_reach_is_an_error_of_the_tree(environment: EnvironmentRef) -> None:
    counts = ProcessCounts()
    reader = Reader("http://127.0.0.1:9/weir", activity=counts)
    with pytest.raises(WarehouseUnavailable):
        await reader.ask(Question(sql="SELECT 1", parameters={}))
    await reader.aclose()
    assert counts.take().values == {"errors": 1}


def test_windows_stand_on_their_buckets() -> None:
    with pytest.raises(ValueError, match="buckets"):
        Window(start_ms=1, end_ms=5_000, resolution=Resolution.FIVE_SECONDS, step_ms=5_000)
