"""From settings to a pipeline: where it reads, where it writes, and the broker that an audit asks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from weir.broker.broker import Broker
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.names import EnvironmentRef, QueueRef
from weir.pipeline.drift_audit import AuditReport, PipelineAuditor
from weir.pipeline.job import PipelineOptions
from weir.pipeline.registry import load_definitions
from weir.pipeline.session import SessionOptions
from weir.settings import Settings, StoreUrls
from weir.telemetry.events import QUEUE_COUNTERS
from weir.telemetry.store import StreamStore
from weir.warehouse.connection import ClickHouseConnection


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
        retention=settings.warehouse.retention,
        keep_archive_days=chosen.keep_archive_days,
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


async def audit_pipeline(options: PipelineOptions, *, wait_s: float) -> AuditReport:
    """Audit what the stores of these options hold, live queues included."""
    store, warehouse = StreamStore(options.redis_url), ClickHouseConnection(options.clickhouse_url)
    names = [definition.name for definition in options.definitions]
    auditor = PipelineAuditor(
        store, warehouse, metrics=names, shards=options.shards, fine_days=options.retention.fine_days
    )
    broker = RedisBroker(RedisConnection(url=options.redis_url), shards=options.shards)
    try:
        environments = await asyncio.to_thread(auditor.environments)
        live = await live_odometers(broker, environments)
        return await asyncio.to_thread(auditor.audit, live, wait_s=wait_s)
    finally:
        await broker.aclose()
        warehouse.close()
        store.close()


async def live_odometers(
    broker: Broker, environments: list[EnvironmentRef]
) -> dict[QueueRef, tuple[int, ...]]:
    """The odometers of every defined queue of these environments, in the order of the counters."""
    found: dict[QueueRef, tuple[int, ...]] = {}
    for environment in environments:
        for state in await broker.states(environment):
            found[state.queue] = tuple(state.odometers.get(name, 0) for name in QUEUE_COUNTERS)
    return found
