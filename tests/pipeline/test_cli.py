"""The pipeline's commands, as a person or a script would use them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pipeline.emission import Emission
from tests.pipeline.test_sink import batches

from weir.cli.main import main
from weir.pipeline.job import PipelineOptions
from weir.pipeline.sink import land
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import stream_key
from weir.warehouse.connection import Connection

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
    weir: Weir, options: PipelineOptions, emission: Emission, warehouse: Connection
) -> None:
    emission.emit(50)
    landed(options, emission)
    warehouse.command("INSERT INTO queue_ledger SELECT * FROM queue_ledger LIMIT 1")
    report = json.loads(weir("audit", "--json", "--wait-s", "2", status=1))
    assert report["drift"] > 0
    assert len(report["queue_drift"]) == 1


def test_an_audit_finds_a_tier_that_lost_rows(
    weir: Weir, options: PipelineOptions, emission: Emission, warehouse: Connection
) -> None:
    emission.emit(50)
    landed(options, emission)
    warehouse.command("TRUNCATE TABLE queue_metrics_1m")
    report = json.loads(weir("audit", "--json", "--wait-s", "2", status=1))
    assert report["tier_drift"] > 0


def test_repairing_what_is_no_checkpoint_is_one_line(weir: Weir, tmp_path: Path) -> None:
    weir("repair-checkpoint", "--checkpoint", str(tmp_path), status=1)


def test_a_time_that_is_none_is_refused(weir: Weir) -> None:
    weir("rebuild", "--from", "yesterday", "--to", "2026-11-16", status=1)
