"""The pipeline's commands, as a person or a script would use them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.pipeline.emission import Emission
from tests.pipeline.flow import Flow
from tests.pipeline.test_sink import batches, check

from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.cli.main import main
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of
from weir.pipeline.definition import QUEUE_METRIC
from weir.pipeline.job import PipelineOptions
from weir.pipeline.sink import land
from weir.spec.ir import QueueSpec
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import stream_key
from weir.warehouse.connection import ClickHouseConnection

Weir = Callable[..., str]


@pytest.fixture
def weir(
    options: PipelineOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Weir:
    """Runs a command against the test's stores; what it printed."""
    monkeypatch.setenv("WEIR_REDIS_URL", options.redis_url)
    monkeypatch.setenv("WEIR_CLICKHOUSE_URL", options.clickhouse_url)
    monkeypatch.setenv("WEIR_POSTGRES_URL", "postgresql://none@127.0.0.1:1/none")
    monkeypatch.setenv("WEIR_SHARDS", str(options.shards))
    monkeypatch.setenv("WEIR_EMBEDDED__DATA_DIR", str(tmp_path / "data"))

    def run(*words: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["pipeline", *words])
        assert ended.value.code == status
        return capsys.readouterr().out

    return run


def landed(options: PipelineOptions, emission: Emission) -> None:
    """Everything in the streams has landed and is settled, without Spark."""
    list(land(batches(options), options.sink))
    store = StreamStore(options.redis_url)
    keys = [stream_key("queue", shard) for shard in range(options.shards)]
    store.settle({key: tail.last_id for key, tail in zip(keys, store.tails(keys), strict=True) if tail})
    store.close()


def test_status_shows_what_waits_although_nothing_ever_ran(weir: Weir, emission: Emission) -> None:
    emission.emit(30)
    found = json.loads(weir("status", "--json"))
    assert (found["running"], found["lag_events"], found["status"]) == (False, 30, None)
    assert "never run" in weir("status")


def test_an_audit_without_drift_says_so(weir: Weir, options: PipelineOptions, emission: Emission) -> None:
    emission.emit(200)
    landed(options, emission)
    report = json.loads(weir("audit", "--json", "--wait-s", "2"))
    assert (report["drift"], report["events"], report["complete"]) == (0, 200, True)
    assert "drift 0" in weir("audit")


def test_an_audit_finds_what_was_counted_twice_and_fails(
    weir: Weir, options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection
) -> None:
    emission.emit(50)
    landed(options, emission)
    warehouse.command("INSERT INTO queue_ledger SELECT * FROM queue_ledger LIMIT 1")
    report = json.loads(weir("audit", "--json", "--wait-s", "2", status=1))
    assert report["drift"] > 0
    assert len(report["drifting"]) == 1


def test_an_audit_finds_a_tier_that_lost_rows(
    weir: Weir, options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection
) -> None:
    emission.emit(50)
    landed(options, emission)
    warehouse.command("TRUNCATE TABLE queue_metrics_1m")
    report = json.loads(weir("audit", "--json", "--wait-s", "2", status=1))
    assert report["tier_drift"] > 0


def test_status_says_how_many_events_were_not_taken_and_why(
    weir: Weir, options: PipelineOptions, emission: Emission
) -> None:
    emission.emit(10)
    for junk in ({"x": "y"}, {"e": b"\xff" * 10}, {"e": b"z" * 20_000}):
        emission.redis.xadd(stream_key("queue", 0), junk)
    landed(options, emission)
    found = json.loads(weir("status", "--json"))
    assert {(row["reason"], row["events"]) for row in found["rejects"]} == {
        ("no event field", 1), ("oversized", 1), ("truncated header", 1),
    }  # fmt: skip
    assert "1 event of queue set_aside: oversized" in weir("status")


def test_status_goes_on_while_it_is_watched(weir: Weir, emission: Emission) -> None:
    emission.emit(30)
    watching = subprocess.Popen(
        [sys.executable, "-m", "weir.cli", "pipeline", "status", "--watch", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    try:
        assert json.loads(watching.stdout.readline())["lag_events"] == 30
        emission.emit(12)
        assert 42 in (json.loads(watching.stdout.readline())["lag_events"] for _ in range(10))
    finally:
        watching.terminate()
        watching.communicate()


def test_a_torn_checkpoint_is_listed_then_repaired_then_whole(weir: Weir, tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / "data" / "pipeline" / "checkpoint" / name).mkdir(parents=True)
    offsets = tmp_path / "data" / "pipeline" / "checkpoint" / "offsets"
    (offsets / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"at_ms":1}')
    (offsets / "1").write_text("")
    (offsets / ".1.crc").write_text("crc")
    assert weir("repair-checkpoint", "--dry-run").split() == ["offsets/1", "offsets/.1.crc"]
    assert (offsets / "1").exists()
    weir("repair-checkpoint")
    assert [path.name for path in offsets.iterdir()] == ["0"]
    assert "whole" in weir("repair-checkpoint")


def process(*words: str) -> str:
    """A command in a process of its own, as it needs a Spark session; the last line that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "weir.cli", "pipeline", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_run_repair_and_rebuild_leave_the_same_totals_in_every_tier(
    weir: Weir, options: PipelineOptions, emission: Emission, warehouse: ClickHouseConnection, tmp_path: Path
) -> None:
    emission.emit(3_000)
    process("run", "--drain")
    check(warehouse, emission)

    checkpoint = tmp_path / "data" / "pipeline" / "checkpoint"
    last = max(int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal())
    (checkpoint / "offsets" / str(last)).write_text("")
    (checkpoint / "commits" / str(last)).unlink()
    assert weir("repair-checkpoint").split() == [f"offsets/{last}"]
    emission.emit(500)
    process("run", "--drain")
    check(warehouse, emission)

    for table in QUEUE_METRIC.tiers[::2]:
        warehouse.command(f"TRUNCATE TABLE {table}")
    now = datetime.now(UTC)
    span = ("--from", (now - timedelta(hours=2)).isoformat(), "--to", (now + timedelta(hours=1)).isoformat())
    done = json.loads(process("rebuild", *span, "--json"))
    assert done["events"] == {"queue": 3_500, "worker": 0, "worker_lag": 0, "life": 0, "log": 0}
    check(warehouse, emission)
    assert json.loads(weir("audit", "--json", "--wait-s", "5"))["drift"] == 0

    for file in (tmp_path / "data" / "pipeline" / "archive").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(AssertionError, match="the archive only 0"):
        process("rebuild", *span)
    check(warehouse, emission)
    assert not list((tmp_path / "data" / "pipeline" / "scratch").iterdir())


def test_repairing_what_is_no_checkpoint_is_one_line(weir: Weir, tmp_path: Path) -> None:
    weir("repair-checkpoint", "--checkpoint", str(tmp_path), status=1)


def test_a_time_that_is_none_is_refused(weir: Weir) -> None:
    weir("rebuild", "--from", "yesterday", "--to", "2026-11-16", status=1)


def test_an_empty_span_is_refused_before_spark_is_started(weir: Weir) -> None:
    weir("rebuild", "--from", "2026-11-16T08:00", "--to", "2026-11-16T08:00", status=1)


def test_metrics_are_switched_off_and_on_and_the_loss_is_told(
    weir: Weir, options: PipelineOptions, environment: EnvironmentRef
) -> None:
    queue = environment.queue("q")

    def push(count: int) -> None:
        async def work() -> None:
            broker = RedisBroker(RedisConnection(url=options.redis_url), shards=options.shards)
            await broker.define(queue, QueueSpec(name="q"))
            await broker.enqueue(queue, [NewMessage(payload=b"x") for _ in range(count)])
            await broker.aclose()

        asyncio.run(work())

    assert "metrics are on; they were never off" in weir("metrics", "status")
    push(2)
    flow = Flow(options)
    flow.move()
    told = weir("metrics", "off", "--reason", "a load test")
    assert "metrics are off since 20" in told
    assert ": a load test" in told
    push(5)
    assert "lost so far: 5 enqueued" in weir("metrics", "status")
    found = json.loads(weir("metrics", "off", "--reason", "again", "--json"))
    assert (found["off"], found["mixed"], found["reason"], found["recorded"]) == (
        True,
        False,
        "a load test",
        True,
    )
    assert found["by"].startswith("command:")
    assert found["loss"] == {"counts": {"enqueued": 5}, "source": "odometers", "landed": True}
    assert "metrics are on since 20" in weir("metrics", "on")
    push(1)
    flow.move()
    flow.close()
    assert json.loads(weir("audit", "--json", "--wait-s", "2"))["drift"] == 0
    told = weir("metrics", "status")
    assert "lost in the last span, as far as audited: 5 enqueued" in told
    (shard,) = {
        gap["shard"] for gap in json.loads(weir("status", "--json"))["gaps"] if any(gap["lost"].values())
    }
    assert shard == shard_of(environment, shards=options.shards)


def test_switching_without_redis_is_one_line(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_REDIS_URL", "redis://127.0.0.1:1")
    weir("metrics", "off", "--reason", "x", status=1)


def test_switching_without_clickhouse_works_and_says_what_is_missing(
    weir: Weir, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = os.environ["WEIR_CLICKHOUSE_URL"]
    monkeypatch.setenv("WEIR_CLICKHOUSE_URL", "http://127.0.0.1:1/weir")
    told = weir("metrics", "off", "--reason", "x")
    assert "ClickHouse does not know the span yet" in told
    monkeypatch.setenv("WEIR_CLICKHOUSE_URL", url)
    assert not json.loads(weir("metrics", "status", "--json"))["recorded"]
    assert json.loads(weir("metrics", "on", "--json"))["recorded"]
