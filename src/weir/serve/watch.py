"""Reads the state of the pipeline from a process that does not run it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from functools import partial

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from weir.errors import Unavailable, WeirError
from weir.model.bounded_threads import BoundedThreads
from weir.pipeline.status import PipelineView, is_running, read_pipeline
from weir.settings import StoreUrls
from weir.telemetry.events import CATALOGUE
from weir.telemetry.progress import PipelineStatus, read_status
from weir.telemetry.store import StreamStore

_ANSWER_S = 2.0
"""Time limit of each answer; one look needs three answers of Redis and two of ClickHouse."""
_LOOK_S = 5.0


def pipeline_watch(urls: StoreUrls, *, shards: int) -> Callable[[], Awaitable[PipelineView]]:
    """A function that reads the pipeline's state without blocking the event loop."""
    threads = BoundedThreads(2, patience_s=_LOOK_S, name="weir-pipeline-watch")
    look = partial(
        read_pipeline,
        redis_url=urls.redis,
        clickhouse_url=urls.clickhouse,
        metrics=[kind.name for kind in CATALOGUE],
        shards=shards,
        answer_s=_ANSWER_S,
    )

    async def watch() -> PipelineView:
        try:
            return await threads.run(look)
        except TimeoutError as error:
            text = f"the stores of the pipeline do not answer ({error}); try again"
            raise Unavailable(text, retry_after_s=1) from None

    return watch


def pipeline_families(redis_url: str) -> Callable[[], AsyncIterator[Metric]]:
    """A function that tells Prometheus how the pipeline is, from outside: a dead one cannot tell it.

    Nothing is told while Redis does not answer, or if no pipeline ever ran.
    """
    threads = BoundedThreads(1, patience_s=_ANSWER_S, name="weir-pipeline-status")

    def read() -> PipelineStatus | None:
        with closing(StreamStore(redis_url, timeout_s=_ANSWER_S)) as store:
            return read_status(store)

    async def families() -> AsyncIterator[Metric]:
        try:
            status = await threads.run(read)
        except (TimeoutError, WeirError):
            return
        if status is not None:
            for family in _families(status):
                yield family

    return families


def _families(status: PipelineStatus) -> list[Metric]:
    running = is_running(status, now_ms=time.time_ns() // 1_000_000)
    return [
        GaugeMetricFamily("weir_pipeline_running", "1 while the pipeline runs or tries to.", int(running)),
        GaugeMetricFamily(
            "weir_pipeline_failing",
            "1 from an error of the pipeline until a batch lands after it.",
            int(bool(status.error)),
        ),
        CounterMetricFamily(
            "weir_pipeline_deaths", "Pipelines that ended without being stopped.", status.deaths
        ),
    ]
