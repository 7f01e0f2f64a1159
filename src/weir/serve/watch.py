"""Reads the state of the pipeline from a process that does not run it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from weir.errors import Unavailable
from weir.model.bounded_threads import BoundedThreads
from weir.pipeline.status import PipelineView, read_pipeline
from weir.settings import StoreUrls
from weir.telemetry.events import CATALOGUE

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
