"""Looking at the pipeline from a process that does not run it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from weir.embedded.urls import Urls
from weir.pipeline.status import PipelineView, read_pipeline
from weir.telemetry.events import CATALOGUE


def pipeline_watch(urls: Urls, *, shards: int) -> Callable[[], Awaitable[PipelineView]]:
    """A function that reads the pipeline's state without stopping the event loop."""
    look = partial(
        read_pipeline,
        redis_url=urls.redis,
        clickhouse_url=urls.clickhouse,
        metrics=[kind.name for kind in CATALOGUE],
        shards=shards,
    )
    return lambda: asyncio.to_thread(look)
