"""What Redis dropped under the reader: counted exactly, explained once, and never an excuse for more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.pipeline.audits import audited
from tests.pipeline.emission import Emission
from tests.pipeline.flow import Flow

from weir.model.names import QueueRef
from weir.pipeline.drift_audit import AuditReport, PipelineAuditor
from weir.pipeline.job import PipelineOptions
from weir.telemetry.events import QUEUE_COUNTERS
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import stream_key
from weir.warehouse.connection import ClickHouseConnection

Totals = dict[QueueRef, tuple[int, ...]]


@pytest.fixture
def flow(options: PipelineOptions) -> Iterator[Flow]:
    flow = Flow(options)
    yield flow
    flow.close()


def audit(
    options: PipelineOptions, warehouse: ClickHouseConnection, live: Totals | None = None
) -> AuditReport:
    store = StreamStore(options.redis_url)
    try:
        auditor = PipelineAuditor(store, warehouse, metrics=["queue"], shards=options.shards)
        return audited(auditor, live)
    finally:
        store.close()


def totals(emission: Emission) -> Totals:
    return {
        queue: tuple(counts[name] for name in QUEUE_COUNTERS) for queue, counts in emission.odometers.items()
    }


def drop(emission: Emission) -> None:
    """Every stream loses all that it holds."""
    for shard in range(emission.shards):
        emission.redis.xtrim(stream_key("queue", shard), maxlen=0, approximate=False)


def drop_from_the_middle(emission: Emission, count: int) -> None:
    """Entries vanish in a way that leaves the witness, so that no gap is noticed."""
    for shard in range(emission.shards):
        key = stream_key("queue", shard)
        found = emission.redis.xrange(key)
        emission.redis.xdel(key, *(entry[0] for entry in found[len(found) // 2 :][:count]))


def test_messages_lost_in_a_gap_are_counted_exactly_over_many_queues(
    options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection, flow: Flow
) -> None:
    emission.emit(600)
    flow.move()
    before = dict(emission.counted)
    emission.emit(150)
    lost = {name: emission.counted[name] - before.get(name, 0) for name in QUEUE_COUNTERS}
    drop(emission)
    emission.emit(600)
    flow.move()
    report = audit(options, warehouse, totals(emission))
    assert report.lost == lost
    assert {(gap.metric, gap.shard) for gap in report.gaps} == {("queue", 0), ("queue", 1)}
    assert (report.drift, report.events, report.complete) == (0, 1_200, True)


def test_what_a_stream_lost_before_its_first_read_is_counted_and_explained(
    options: PipelineOptions, warehouse: ClickHouseConnection, emission: Emission, flow: Flow
) -> None:
    emission.emit(400)
    if "entries-added" not in emission.redis.xinfo_stream(stream_key("queue", 0)):
        pytest.skip("this server does not count what it dropped")
    for shard in range(emission.shards):
        emission.redis.xtrim(stream_key("queue", shard), maxlen=1, approximate=False)
    emission.emit(400)
    flow.move()
    report = audit(options, warehouse, totals(emission))
    assert report.drift == 0
    assert sum(gap.entries or 0 for gap in report.gaps) == 400 - emission.shards
    assert {gap.from_id for gap in report.gaps} == {"0-0"}
    assert sum(report.lost.values()) > 0


def test_entries_dropped_between_two_reads_of_one_batch_are_a_gap(
    options: PipelineOptions, emission: Emission, streams_url: str
) -> None:
    emission.emit(400)
    store, key = StreamStore(streams_url), stream_key("queue", 0)
    ids = [entry[0].decode() for entry in emission.redis.xrange(key)]
    reading = store.read(key, after="0-0", until=ids[-1], chunk=50)
    next(reading)
    emission.redis.xtrim(key, minid=ids[80], approximate=False)
    gap, *rest = reading
    store.close()
    assert (gap.after, gap.until) == (ids[50], ids[80])  # type: ignore[union-attr]
    assert sum(len(run) for run in rest) == len(ids) - 80  # type: ignore[arg-type]


@pytest.mark.parametrize("lost_in_gap", [0, 100])
def test_a_later_loss_is_drift_although_the_shard_once_had_a_gap(
    options: PipelineOptions,
    emission: Emission,
    warehouse: ClickHouseConnection,
    flow: Flow,
    lost_in_gap: int,
) -> None:
    emission.emit(400)
    flow.move()
    emission.emit(lost_in_gap)
    drop(emission)
    emission.emit(400)
    flow.move()
    assert audit(options, warehouse).drift == 0

    emission.emit(200)
    drop_from_the_middle(emission, 20)
    flow.move()
    report = audit(options, warehouse)
    assert report.drift > 0
    assert report.drifting
    assert audit(options, warehouse).drift == report.drift


def test_live_odometers_ahead_are_excused_only_by_a_gap_since_the_queue_last_spoke(
    options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection, flow: Flow
) -> None:
    emission.emit(400)
    flow.move()
    drop(emission)
    emission.emit(400)
    flow.move()
    live = totals(emission)
    ahead = next(iter(live))
    assert audit(options, warehouse, live).drift == 0
    live[ahead] = tuple(count + 3 for count in live[ahead])
    report = audit(options, warehouse, live)
    assert report.drift == 3 * len(QUEUE_COUNTERS)
    assert [row["queue"] for row in report.drifting if row["live_drift"]] == [ahead.queue]


def test_a_queue_that_was_silent_since_the_gap_is_not_called_lost(
    options: PipelineOptions,
    emission: Emission,
    warehouse: ClickHouseConnection,
    flow: Flow,
    streams_url: str,
) -> None:
    emission.emit(400)
    flow.move()
    other = Emission(streams_url, queues=40, seed=8)
    other.emit(200)
    drop(emission)
    silent = next(queue for queue in other.odometers if queue not in emission.odometers)
    emission.emit(100)
    flow.move()
    live = {silent: tuple(other.odometers[silent][name] for name in QUEUE_COUNTERS)}
    assert audit(options, warehouse, live).drift == 0
    other.redis.close()


def test_a_gap_does_not_explain_drift_that_was_reported_before_it(
    options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection, flow: Flow
) -> None:
    emission.emit(100)
    flow.move()
    emission.emit(400)
    drop_from_the_middle(emission, 20)
    flow.move()
    reported = audit(options, warehouse).drift
    assert reported > 0

    before = dict(emission.counted)
    emission.emit(150)
    lost = {name: emission.counted[name] - before[name] for name in ("enqueued", "dequeued", "acked")}
    drop(emission)
    emission.emit(600)
    flow.move()
    report = audit(options, warehouse)
    assert report.drift == reported
    assert {name: report.lost[name] for name in lost} == lost
    assert audit(options, warehouse).drift == reported


@pytest.mark.parametrize("gaps", [1, 2])
def test_a_gap_does_not_explain_a_loss_before_it_although_no_audit_saw_the_loss(
    options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection, flow: Flow, gaps: int
) -> None:
    for _ in range(gaps):
        emission.emit(400)
        flow.move()
        emission.emit(100)
        drop(emission)
    emission.emit(400)
    flow.move()
    assert audit(options, warehouse).drift == 0
    emission.emit(400)
    drop_from_the_middle(emission, 20)
    flow.move()
    silent = sum(emission.counted.values()) - counted_and_lost(warehouse)
    for _ in range(gaps):
        emission.emit(150)
        drop(emission)
        emission.emit(400)
        flow.move()
    assert silent > 0
    assert audit(options, warehouse).drift == silent


def counted_and_lost(warehouse: ClickHouseConnection) -> int:
    columns = " + ".join(f"sum({name})" for name in QUEUE_COUNTERS)
    tables = ("queue_ledger", "queue_losses")
    return sum(warehouse.rows(f"SELECT {columns} AS n FROM {table}")[0]["n"] for table in tables)
