"""Runs one pipeline process: a Spark session, a supervisor over its query, and the published status."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, start_http_server
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from weir.errors import WarehouseUnavailable, WeirError
from weir.pipeline.audit_loop import AuditLoop, RunAudit
from weir.pipeline.batches import Landed
from weir.pipeline.job import Observe, PipelineOptions, start
from weir.pipeline.metric_migration import require_tables
from weir.pipeline.metric_tables import kept_days
from weir.pipeline.ownership import StreamsLease, owned_checkpoint, owned_streams
from weir.pipeline.pipeline_metrics import PipelineMetrics
from weir.pipeline.session import SessionOptions, open_session
from weir.pipeline.source import settle_planned
from weir.pipeline.supervisor import QuerySupervisor
from weir.pipeline.switch_gaps import SwitchGapRecorder
from weir.pipeline.upkeep import Upkeep, UpkeepOptions
from weir.telemetry.progress import publish_status, read_lags, read_status
from weir.telemetry.store import StreamStore
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.migrate import verify_warehouse
from weir.warehouse.retention import apply_retention

_log = structlog.get_logger(__name__)


# A batch of the largest size takes about two seconds; a store that hangs must not hold up a stop for long.
FINISH_S = 10.0


class JvmLost(BaseException):
    """Spark's JVM is gone; no session of this process can be used again."""


class FinishingQuery:
    """A streaming query whose `stop` waits for the end of its batch.

    Stopping within a batch loses nothing, but each of its tasks would fill the log with errors.
    """

    def __init__(self, query: Any, lease: StreamsLease) -> None:
        self._query = query
        self._lease = lease

    def awaitTermination(self, timeout: float) -> bool | None:  # noqa: N802
        ended: bool | None = self._query.awaitTermination(timeout)
        return ended

    def stop(self) -> None:
        if self._query.isActive:
            with suppress(WeirError):
                self._lease.pause_planning(2 * FINISH_S)
                self._wait_for_batch()
        self._query.stop()

    def _wait_for_batch(self) -> None:
        deadline = time.monotonic() + FINISH_S
        while self._query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(0.02)


def run_pipeline(
    options: PipelineOptions,
    session: SessionOptions,
    *,
    metrics_port: int | None = None,
    available_now: bool = False,
    on_started: Callable[[], None] = lambda: None,
    run_audit: RunAudit | None = None,
) -> None:
    """Run until a signal, or with `available_now` until the streams are drained.

    It calls `run_audit` regularly. When the JVM dies, the process replaces itself: nothing of a session
    survives its JVM.
    """
    try:
        with owned_checkpoint(options.checkpoint), owned_streams(options.redis_url) as lease:
            owned = replace(options, owner=lease.owner.as_text())
            _run(owned, session, lease, metrics_port, available_now, on_started, run_audit)
    except JvmLost:
        _log.error("the JVM is gone; starting over")
        # A JVM that dies at once must not keep a core busy with restarts.
        time.sleep(1)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _run(
    options: PipelineOptions,
    session: SessionOptions,
    lease: StreamsLease,
    metrics_port: int | None,
    available_now: bool,
    on_started: Callable[[], None],
    run_audit: RunAudit | None,
) -> None:
    # Before Spark starts, which takes seconds: a missing migration must be reported at once.
    _require_tables(options)
    registry = CollectorRegistry()
    metrics = PipelineMetrics(registry, metrics=[definition.name for definition in options.definitions])
    store = StreamStore(options.redis_url, timeout_s=2)
    if metrics_port is not None:
        # Loopback only: these figures are for a scraper on the same host.
        start_http_server(metrics_port, addr="127.0.0.1", registry=registry)
    with suppress(WeirError):
        metrics.continue_from(read_status(store))
    spark = open_session(session)

    recorder = SwitchGapRecorder(
        store,
        options.clickhouse_url,
        metrics=[definition.name for definition in options.definitions],
        shards=options.shards,
    )
    audits = None
    if run_audit is not None and options.audit_period_s and not available_now:
        audits = AuditLoop(run_audit, metrics, period_s=options.audit_period_s)

    def publish() -> None:
        _publish(spark, store, metrics, options)
        recorder.record()

    def observe(number: int, rows: Sequence[Landed]) -> None:
        metrics.count_batch(number, rows)
        supervisor.note_landed()
        if audits is not None and any(row.gaps for row in rows):
            audits.audit_soon()
        with suppress(WeirError):
            publish()

    supervisor = QuerySupervisor(
        lambda: FinishingQuery(_start(spark, options, observe, available_now), lease),
        stores_answer=lambda: stores_answer(options),
        metrics=metrics,
        publish=publish,
    )
    _stop_on_signals(supervisor)
    lease.when_lost(supervisor.stop)
    upkeep = _start_upkeep(options)
    if audits is not None:
        audits.start()
    on_started()
    if supervisor.run() and lease.lost_to is None:
        # Spark confirms a batch when it plans the next one, and after the last batch there is none.
        settle_planned(options.source)
    if upkeep is not None:
        upkeep.stop()
    if audits is not None:
        audits.stop()
    spark.stop()
    lease.require()


def _start_upkeep(options: PipelineOptions) -> Upkeep | None:
    """Start the archive's upkeep, if there is an archive."""
    if options.archive is None:
        return None
    upkeep = Upkeep(
        UpkeepOptions(
            archive=options.archive,
            redis_url=options.redis_url,
            definitions=options.definitions,
            keep_days=options.keep_archive_days,
        )
    )
    upkeep.start()
    return upkeep


def _start(spark: SparkSession, options: PipelineOptions, observe: Observe, available_now: bool) -> Any:
    try:
        _prepare_tables(options)
        return start(spark, options, observe=observe, available_now=available_now)
    except (Py4JError, ConnectionError) as error:
        _require_jvm(spark)
        raise error


def _require_tables(options: PipelineOptions) -> None:
    """Refuse a warehouse that was not migrated, but not one that does not answer: it may come back."""
    with suppress(WarehouseUnavailable):
        asyncio.run(verify_warehouse(options.clickhouse_url))
        with closing(ClickHouseConnection(options.clickhouse_url)) as connection:
            require_tables(connection, options.definitions)


def _prepare_tables(options: PipelineOptions) -> None:
    """Check the tables again, since ClickHouse may have been away before, and set how long they keep rows."""
    with closing(ClickHouseConnection(options.clickhouse_url)) as connection:
        require_tables(connection, options.definitions)
        for definition in options.definitions:
            apply_retention(connection, kept_days(definition, options.retention))


def _publish(
    spark: SparkSession, store: StreamStore, metrics: PipelineMetrics, options: PipelineOptions
) -> None:
    _require_jvm(spark)
    names = [definition.name for definition in options.definitions]
    metrics.set_lags(
        read_lags(store, metrics=names, shards=options.shards, now_ms=time.time_ns() // 1_000_000)
    )
    publish_status(store, metrics.status)


def _require_jvm(spark: SparkSession) -> None:
    gateway: Any = spark.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is not None and process.poll() is not None:
        raise JvmLost


def stores_answer(options: PipelineOptions) -> bool:
    """Whether Redis and ClickHouse both answer."""
    try:
        with closing(StreamStore(options.redis_url, timeout_s=2)) as store:
            store.is_held()
        with closing(ClickHouseConnection(options.clickhouse_url, timeout_s=5)) as warehouse:
            warehouse.rows("SELECT 1")
    except WeirError:
        return False
    return True


def _stop_on_signals(supervisor: QuerySupervisor) -> None:
    # Python sets signal handlers in the main thread only.
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: supervisor.stop())
