"""Audits beside a running pipeline: how long they hold it up, and what they say if they cannot finish."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from tests.pipeline.audits import audited
from tests.pipeline.emission import Emission
from tests.pipeline.flow import Flow

from support.tcp_proxy import TcpProxy
from support.waiting import until, wait_until
from weir.errors import Conflict, Unavailable, WarehouseUnavailable
from weir.pipeline import drift_audit
from weir.pipeline.audit_loop import AuditLoop
from weir.pipeline.drift_audit import AUDIT_LEASE, AuditReport, PipelineAuditor
from weir.pipeline.job import PipelineOptions
from weir.pipeline.pipeline_metrics import PipelineMetrics
from weir.pipeline.quiet import run_between_batches
from weir.pipeline.source import PLAN
from weir.telemetry.store import StreamStore
from weir.warehouse.audit_snapshot import AuditSnapshot
from weir.warehouse.connection import ClickHouseConnection

RUNNING = {"start": {"queue": "1-0"}, "end": {"queue": "2-0"}}
IDLE = {"start": {"queue": "1-0"}, "end": {"queue": "1-0"}}


@pytest.fixture
def store(streams_url: str) -> Iterator[StreamStore]:
    store = StreamStore(streams_url)
    yield store
    store.close()


@pytest.fixture
def auditor(
    options: PipelineOptions, store: StreamStore, warehouse: ClickHouseConnection, emission: Emission
) -> PipelineAuditor:
    flow = Flow(options)
    emission.emit(100)
    flow.move()
    flow.close()
    return PipelineAuditor(store, warehouse, metrics=["queue"], shards=options.shards)


def test_a_step_runs_between_batches_and_the_pipeline_goes_on(store: StreamStore) -> None:
    held = []
    pause = run_between_batches(store, lambda: held.append(store.is_held()), wait_s=1)
    assert (held, pause.problem, store.is_held()) == ([True], "", False)


def test_a_step_waits_for_the_running_batch(store: StreamStore) -> None:
    store.remember(PLAN, RUNNING)
    pause = run_between_batches(store, lambda: pytest.fail("a batch is running"), wait_s=0.3)
    assert "running for longer" in pause.problem
    assert not store.is_held()


def test_a_batch_that_came_in_between_makes_the_step_void(store: StreamStore) -> None:
    store.remember(PLAN, IDLE)
    after = {"start": {"queue": "2-0"}, "end": {"queue": "2-0"}}
    assert run_between_batches(store, lambda: store.remember(PLAN, after), wait_s=1).problem
    assert run_between_batches(store, lambda: store.remember(PLAN, RUNNING), wait_s=1).problem


def test_a_step_that_takes_too_long_holds_nothing_up_and_is_void(store: StreamStore) -> None:
    def wait() -> None:
        wait_until(lambda: not store.is_held(), timeout_s=3)

    began = time.monotonic()
    pause = run_between_batches(store, wait, wait_s=1)
    assert "longer than 0.9 s" in pause.problem
    assert time.monotonic() - began < 1.5


def test_a_rebuild_keeps_its_hold_while_an_audit_comes_and_goes(store: StreamStore) -> None:
    assert store.hold(30, holder="rebuild")
    pause = run_between_batches(store, lambda: pytest.fail("a rebuild is running"), wait_s=0.2)
    assert pause.problem
    assert store.is_held()


def _hold_for_ever(url: str) -> None:
    store = StreamStore(url)
    run_between_batches(store, lambda: time.sleep(60), wait_s=1)


def test_the_hold_of_a_killed_process_ends_by_itself(store: StreamStore, streams_url: str) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_hold_for_ever, args=(streams_url,))
    process.start()
    wait_until(store.is_held, timeout_s=20)
    process.kill()
    began = time.monotonic()
    wait_until(lambda: not store.is_held(), timeout_s=5)
    assert time.monotonic() - began < 1
    process.join()


def test_an_audit_that_cannot_finish_says_so_and_is_never_zero(
    auditor: PipelineAuditor,
    store: StreamStore,
    emission: Emission,
    warehouse: ClickHouseConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drift_audit, "BATCH_WAIT_S", 0.2)
    emission.emit(10)
    report = auditor.audit({}, wait_s=0.1)
    assert (report.drift, report.complete, report.ledger_drift, report.queues) == (None, False, None, None)
    assert "landed" in report.reason
    store.hold(30, holder="rebuild")
    assert auditor.audit({}, wait_s=0.1, problem="some are missing").drift is None
    store.release(holder="rebuild")
    rows = warehouse.rows("SELECT number, drift, reason != '' AS why FROM metric_audits ORDER BY number")
    assert [(row["number"], row["drift"], row["why"]) for row in rows] == [(1, None, 1), (2, None, 1)]


@pytest.mark.parametrize("lost", ["ClickHouse", "Redis"])
async def test_a_store_that_goes_away_in_the_hold_is_an_error_and_the_next_audit_is_whole(
    options: PipelineOptions, auditor: PipelineAuditor, store: StreamStore, emission: Emission, lost: str
) -> None:
    urls = {"Redis": options.redis_url, "ClickHouse": options.clickhouse_url}
    loop = asyncio.get_running_loop()
    async with TcpProxy.to(urls[lost]) as proxy:
        urls[lost] = proxy.url

        def audit() -> AuditReport:
            mine, connection = (
                StreamStore(urls["Redis"], timeout_s=1),
                ClickHouseConnection(urls["ClickHouse"]),
            )
            shaky = PipelineAuditor(mine, connection, metrics=["queue"], shards=options.shards)
            link = AuditSnapshot._link

            def cut(snapshot: AuditSnapshot, table: str) -> None:
                loop.call_soon_threadsafe(proxy.refuse)
                wait_until(lambda: not proxy._accepting)
                link(snapshot, table)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(AuditSnapshot, "_link", cut)
                return shaky.audit({}, wait_s=1)

        with pytest.raises(Unavailable):
            await asyncio.to_thread(audit)
    await until(lambda: not store.is_held(), within_s=2)
    # After an outage of Redis the lease ends by itself; this test does not wait that long.
    emission.redis.delete(f"weir:pipeline:lease:{AUDIT_LEASE}")
    assert (await asyncio.to_thread(audited, auditor)).drift == 0


def test_only_one_audit_runs_at_a_time(auditor: PipelineAuditor, store: StreamStore) -> None:
    store.claim(AUDIT_LEASE, holder="another", seconds=60)
    with pytest.raises(Conflict, match="another audit"):
        auditor.audit({}, wait_s=0.1)
    store.unclaim(AUDIT_LEASE, holder="another")
    assert audited(auditor).drift == 0


def test_copies_of_a_dead_audit_are_replaced_and_none_stay_behind(
    auditor: PipelineAuditor, warehouse: ClickHouseConnection
) -> None:
    warehouse.command("CREATE TABLE audited_queue_ledger AS queue_ledger")
    warehouse.command("INSERT INTO audited_queue_ledger SELECT * FROM queue_ledger")
    assert audited(auditor).drift == 0
    assert warehouse.rows("SHOW TABLES LIKE 'audited%'") == []


class Audits:
    """Answers of audits, one after the other; the last one stays."""

    def __init__(self, *answers: int | Exception | None) -> None:
        self._answers = list(answers)
        self.asked: list[float] = []

    def __call__(self, wait_s: float) -> AuditReport:
        self.asked.append(wait_s)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return replace(NOTHING, drift=answer, complete=answer is not None)


NOTHING = AuditReport(
    drift=0, complete=True, reason="", number=1, started_ms=5_000, held_ms=0, queues=0, events=0,
    ledger_drift=0, tier_drift=0, live_drift=0, drifting=(), lost={}, gaps=(), rejects=(), tiers=(),
)  # fmt: skip


def test_the_loop_survives_a_store_that_is_away_and_reports_the_drift_afterwards() -> None:
    registry = CollectorRegistry()
    audits = Audits(WarehouseUnavailable("away"), None, Conflict("another"), 7)
    loop = AuditLoop(audits, PipelineMetrics(registry, metrics=()), period_s=0.05)
    assert registry.get_sample_value("weir_metrics_drift") is None
    loop.start()
    wait_until(lambda: registry.get_sample_value("weir_metrics_drift") == 7, timeout_s=5)
    loop.stop()
    assert audits.asked[0] > audits.asked[1]
    assert registry.get_sample_value("weir_metrics_audit_complete") == 1
    assert registry.get_sample_value("weir_metrics_audit_timestamp_seconds") == 5


def test_the_drift_stays_that_of_the_newest_complete_audit() -> None:
    registry = CollectorRegistry()
    loop = AuditLoop(Audits(7, None), PipelineMetrics(registry, metrics=()), period_s=0.05)
    loop.start()
    wait_until(lambda: registry.get_sample_value("weir_metrics_audit_complete") == 0, timeout_s=5)
    loop.stop()
    assert registry.get_sample_value("weir_metrics_drift") == 7


def test_a_gap_asks_for_an_audit_before_the_period_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.pipeline.audit_loop.SHORTEST_S", 0.0)
    audits = Audits(0)
    loop = AuditLoop(audits, PipelineMetrics(CollectorRegistry(), metrics=()), period_s=600)
    loop.start()
    wait_until(lambda: len(audits.asked) == 1, timeout_s=5)
    loop.audit_soon()
    wait_until(lambda: len(audits.asked) == 2, timeout_s=5)
    loop.stop()


@pytest.mark.slow
def test_an_audit_of_a_hundred_thousand_queues_holds_the_pipeline_for_less_than_a_second(
    options: PipelineOptions, store: StreamStore, warehouse: ClickHouseConnection
) -> None:
    # A busy host may need longer for a block of 100,000 queues than the usual connection waits.
    patient = ClickHouseConnection(options.clickhouse_url, timeout_s=300)
    for step in range(6):
        patient.command(
            "INSERT INTO queue_events_landing "
            "(organization, project, environment, queue, bucket_start, shard, last_at, events, enqueued, "
            "enqueued_total, wait_ms) "
            "SELECT 'o', 'p', toString(number % 100), toString(number), "
            "toDateTime(toUnixTimestamp(now()) - {step:UInt32} * 300), 0, now64(3), 1, 1, 6, [1, 2, 3] "
            "FROM numbers(100000)",
            {"step": step},
        )
    auditor = PipelineAuditor(store, patient, metrics=["queue"], shards=options.shards)
    # On a host that has no time, an audit gives up rather than hold the pipeline for longer.
    for _ in range(10):
        report = auditor.audit({}, wait_s=1)
        assert report.held_ms < 1_000
        if report.complete:
            break
    patient.close()
    assert (report.drift, report.queues, report.complete) == (0, 100_000, True)
    took = warehouse.rows("SELECT max(took_ms) AS ms FROM metric_audits")[0]["ms"]
    print(f"held {report.held_ms} ms, took {took} ms")
