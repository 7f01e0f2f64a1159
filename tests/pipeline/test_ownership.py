"""One pipeline per Redis: the lease on the streams, and what happens to its owner."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from redis import Redis
from tests.pipeline.emission import Emission
from tests.pipeline.exactness import Rig, proxied

from support.processes import frozen_tree
from support.waiting import wait_until
from weir.errors import Conflict, LeaseLost, Misconfigured
from weir.pipeline.job import PipelineOptions
from weir.pipeline.ownership import STREAMS, StreamsLease, StreamsOwner, owned_streams
from weir.pipeline.source import PLAN, ReadTaskPartition, StreamsReader
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import stream_key
from weir.warehouse.connection import ClickHouseConnection

SHORT_S = 4.5
KEY = f"weir:pipeline:lease:{STREAMS}"


def elsewhere() -> StreamsOwner:
    """An owner on another host, of which only its lease tells whether it lives."""
    return StreamsOwner(process=7, host="far-away", kernel="another")


@contextmanager
def leased(url: str, owner: StreamsOwner | None = None) -> Iterator[StreamsLease]:
    lease = StreamsLease(url, seconds=SHORT_S, owner=owner)
    lease.take()
    lease.start()
    try:
        yield lease
    finally:
        lease.end()


def test_a_second_pipeline_is_refused_with_the_name_of_the_first(streams_url: str) -> None:
    with leased(streams_url, elsewhere()):
        began = time.monotonic()
        with pytest.raises(Misconfigured, match="process 7 on far-away already owns these streams"):
            StreamsLease(streams_url, seconds=SHORT_S).take()
        assert time.monotonic() - began < SHORT_S
    with leased(streams_url):
        pass


def test_the_lease_of_a_killed_pipeline_on_this_host_is_taken_at_once(streams_url: str) -> None:
    code = (
        "import sys, time\nfrom weir.pipeline.ownership import owned_streams\n"
        "with owned_streams(sys.argv[1]):\n    print('owned', flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, streams_url], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"owned\n"
        owner.kill()
    began = time.monotonic()
    with owned_streams(streams_url):
        assert time.monotonic() - began < 2


def test_the_lease_of_a_lost_host_runs_out_and_passes_on_by_itself(
    streams_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = StreamsLease(streams_url, seconds=SHORT_S, owner=elsewhere())
    lost.take()
    with leased(streams_url):
        pass
    assert "process 7 on far-away" in capsys.readouterr().out


def test_a_process_that_replaced_itself_takes_its_lease_again(streams_url: str) -> None:
    StreamsLease(streams_url).take()
    began = time.monotonic()
    StreamsLease(streams_url).take()
    assert time.monotonic() - began < 1


def test_an_owner_that_stood_still_notices_that_another_took_over(streams_url: str) -> None:
    told: list[str] = []
    with leased(streams_url) as first:
        first.when_lost(lambda: told.append("lost"))
        Redis.from_url(streams_url).set(KEY, elsewhere().as_text(), px=60_000)
        wait_until(lambda: told)
        with pytest.raises(Conflict, match="process 7 on far-away took the streams over"):
            first.require()
    held = StreamStore(streams_url).read_lease(STREAMS)
    assert held is not None, "the lease of the other must stay"


def test_redis_may_be_away_for_longer_than_the_lease(streams_url: str) -> None:
    redis = Redis.from_url(streams_url)
    with proxied(streams_url) as proxy, leased(proxy.url) as lease:
        proxy.refuse()
        wait_until(lambda: not redis.exists(KEY), timeout_s=2 * SHORT_S)
        proxy.heal()
        wait_until(lambda: redis.get(KEY) == lease.owner.as_text().encode())
        lease.require()


@pytest.fixture
def owned(options: PipelineOptions) -> Iterator[PipelineOptions]:
    with leased(options.redis_url) as lease:
        yield replace(options, owner=lease.owner.as_text())


def lose(options: PipelineOptions) -> None:
    Redis.from_url(options.redis_url).set(KEY, elsewhere().as_text(), px=60_000)


def test_a_source_whose_lease_passed_on_plans_settles_and_notes_nothing(
    owned: PipelineOptions, emission: Emission
) -> None:
    emission.emit(300)
    reader, store = StreamsReader(owned.source), StreamStore(owned.redis_url)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(100_000))
    assert end != start
    lose(owned)
    with pytest.raises(LeaseLost):
        reader.latestOffset(start, ReadMaxRows(100_000))
    with pytest.raises(LeaseLost):
        reader.partitions(start, end)
    reader.commit(end)
    assert store.recall(PLAN) is None or store.recall(PLAN)["end"] == start
    assert sum(tail.length for tail in store.tails([stream_key("queue", n) for n in range(2)]) if tail) == 300


def test_a_source_whose_lease_is_gone_waits_for_its_driver(
    owned: PipelineOptions, emission: Emission
) -> None:
    emission.emit(300)
    reader = StreamsReader(owned.source)
    start = reader.initialOffset()
    Redis.from_url(owned.redis_url).delete(KEY)
    assert reader.latestOffset(start, ReadMaxRows(100_000)) == start
    wait_until(lambda: reader.latestOffset(start, ReadMaxRows(100_000)) != start)


def test_entries_that_the_next_owner_trimmed_are_not_reported_as_a_gap(
    owned: PipelineOptions, emission: Emission
) -> None:
    emission.emit(300)
    reader, store = StreamsReader(owned.source), StreamStore(owned.redis_url)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(100_000))
    reader.partitions(start, first)
    emission.emit(300)
    end = reader.latestOffset(first, ReadMaxRows(100_000))
    tasks = reader.partitions(first, end)
    lose(owned)
    keys = [stream_key("queue", shard) for shard in range(2)]
    store.settle({key: tail.last_id for key, tail in zip(keys, store.tails(keys), strict=True) if tail})
    for task in tasks:
        assert isinstance(task, ReadTaskPartition)
        with pytest.raises(LeaseLost):
            list(reader.read(task))


@pytest.mark.fault
def test_a_pipeline_that_froze_beyond_its_lease_gives_way_and_nothing_counts_twice(
    emission: Emission,
    streams_url: str,
    warehouse: ClickHouseConnection,
    warehouse_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # To Spark and to Weir this checkpoint is remote; its files are where both can reach them.
    link = f"spark.hadoop.fs.viewfs.mounttable.weir.link./checkpoint=file://{tmp_path / 'checkpoint'}"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf {link} pyspark-shell")
    monkeypatch.setenv("WEIR_PIPELINE__CHECKPOINT", "viewfs://weir/checkpoint")
    (tmp_path / "checkpoint").mkdir()
    first, second = (
        Rig(redis_url=streams_url, clickhouse_url=warehouse_url, folder=tmp_path / name, shards=2)
        for name in ("first", "second")
    )

    def landed() -> int:
        return int(warehouse.rows("SELECT sum(events) AS n FROM queue_ledger")[0]["n"])

    try:
        for rig in (first, second):
            (tmp_path / ("first" if rig is first else "second")).mkdir()
        first.start()
        emission.emit(2_000)
        wait_until(lambda: landed() == 2_000, timeout_s=120)
        emission.emit(100_000)
        wait_until(lambda: landed() > 2_000, timeout_s=60)
        assert first.process is not None
        with frozen_tree(first.process.pid):
            second.start()
            emission.emit(20_000)
            wait_until(lambda: landed() == 122_000, timeout_s=180)
        emission.emit(1_000)
        wait_until(lambda: first.process.poll() is not None, timeout_s=60)
        assert first.process.returncode == 1
        wait_until(lambda: landed() == 123_000, timeout_s=60)
        assert "took the streams over while this pipeline stood still" in (
            (tmp_path / "first" / "pipeline.log").read_text()
        )
        assert "process " in (tmp_path / "second" / "pipeline.log").read_text()
    finally:
        first.stop()
        second.stop()
    assert warehouse.rows("SELECT count() AS n FROM metric_gaps")[0]["n"] == 0
    report = second.command("audit")
    assert (report["drift"], report["events"]) == (0, 123_000)
    assert (tmp_path / "checkpoint" / "offsets").exists()
