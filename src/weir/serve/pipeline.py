"""Builds a pipeline and its audit from the settings."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from weir.broker.broker import Broker
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.errors import NotFound
from weir.model.names import EnvironmentRef, QueueRef
from weir.pipeline.audit_loop import RunAudit
from weir.pipeline.drift_audit import AuditReport, PipelineAuditor
from weir.pipeline.job import PipelineOptions
from weir.pipeline.planning import READ_TASK_EVENTS
from weir.pipeline.registry import load_definitions
from weir.pipeline.session import SessionOptions
from weir.settings import Settings, StoreUrls
from weir.telemetry.events import QUEUE_COUNTERS
from weir.telemetry.store import StreamStore
from weir.warehouse.audit_reader import ENVIRONMENTS_PER_QUESTION, Counts
from weir.warehouse.connection import ClickHouseConnection

LIVE_S = 60.0
"""Time limit for reading all live odometers; without some of them an audit is incomplete."""


def pipeline_options(settings: Settings, urls: StoreUrls) -> PipelineOptions:
    chosen = settings.pipeline
    return PipelineOptions(
        redis_url=urls.redis,
        clickhouse_url=urls.clickhouse,
        checkpoint=checkpoint_folder(settings),
        archive=_place(chosen.archive) or str(_folder(settings) / "archive"),
        shards=settings.shards,
        definitions=load_definitions(chosen.metrics),
        trigger_ms=chosen.trigger_ms,
        max_events=chosen.max_events,
        max_read_tasks=chosen.max_read_tasks,
        read_task_events=chosen.read_task_events or READ_TASK_EVENTS,
        retention=settings.warehouse.retention,
        keep_archive_days=chosen.keep_archive_days,
        audit_period_s=chosen.audit_period_s,
    )


def checkpoint_folder(settings: Settings) -> str:
    return _place(settings.pipeline.checkpoint) or str(_folder(settings) / "checkpoint")


def _place(name: str | None) -> str | None:
    """A URL as it is, a path as an absolute one: Spark's processes run in folders of their own."""
    return name if name is None or "://" in name else str(Path(name).absolute())


def _folder(settings: Settings) -> Path:
    """Where the pipeline keeps its files unless the settings name other places."""
    return settings.embedded.data_dir.absolute() / "pipeline"


def session_options(settings: Settings, *, master: str | None = None) -> SessionOptions:
    return SessionOptions(
        master=master or settings.pipeline.master,
        memory=settings.pipeline.memory,
        scratch=_folder(settings) / "scratch",
        bundle=settings.pipeline.bundle,
    )


def jvm_answers() -> bool:
    """Whether Spark's JVM answers a call, or has not started yet. The call hangs while the JVM hangs."""
    context: Any = SparkContext._active_spark_context
    try:
        return context is None or context._jvm is None or context._jvm.System.nanoTime() is not None
    except (Py4JError, OSError):
        return False


def audit_in_thread(options: PipelineOptions) -> RunAudit:
    """The audit as the loop of a pipeline process calls it."""
    return lambda wait_s: asyncio.run(audit_pipeline(options, wait_s=wait_s))


async def audit_pipeline(options: PipelineOptions, *, wait_s: float) -> AuditReport:
    """Audit the stores of these options, including live queues."""
    store, warehouse = StreamStore(options.redis_url), ClickHouseConnection(options.clickhouse_url)
    names = [definition.name for definition in options.definitions]
    auditor = PipelineAuditor(
        store, warehouse, metrics=names, shards=options.shards, fine_days=options.retention.fine_days
    )
    broker = RedisBroker(RedisConnection(url=options.redis_url), shards=options.shards)
    try:
        live, problem = await read_live(broker, auditor)
        # Not in a thread of asyncio: an audit may wait for minutes, and Python joins those threads at exit.
        return auditor.audit(live, wait_s=wait_s, problem=problem)
    finally:
        await broker.aclose()
        warehouse.close()
        store.close()


async def read_live(
    broker: Broker, auditor: PipelineAuditor, *, within_s: float = LIVE_S
) -> tuple[dict[QueueRef, Counts], str]:
    """The live odometers that are ahead of the landed ones, and why some are missing, if so.

    Others are not kept, so that a million queues at rest need no memory.
    """
    found: dict[QueueRef, Counts] = {}
    deadline = time.monotonic() + within_s
    environments = await asyncio.to_thread(auditor.environments)
    for start in range(0, len(environments), ENVIRONMENTS_PER_QUESTION):
        live: dict[QueueRef, Counts] = {}
        for environment in environments[start : start + ENVIRONMENTS_PER_QUESTION]:
            if time.monotonic() > deadline:
                return found, f"the live queues could not be read within {within_s:.0f} s"
            live |= await live_odometers(broker, environment)
        found |= await asyncio.to_thread(auditor.keep_ahead, live)
    return found, ""


async def live_odometers(broker: Broker, environment: EnvironmentRef) -> dict[QueueRef, Counts]:
    """The odometers of every defined queue of an environment, in the order of the counters."""
    try:
        states = await broker.states(environment)
    except NotFound:
        # The environment or one of its queues was deleted since the list was read.
        return {}
    return {state.queue: tuple(state.odometers.get(name, 0) for name in QUEUE_COUNTERS) for state in states}
