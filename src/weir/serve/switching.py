"""Builds the switch of the metrics from the settings, without Spark, so that every process can use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from weir.broker.broker import Broker
from weir.broker.metrics_switch import MetricsSwitch
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.model.shards import require_shards
from weir.pipeline.switching import MetricsSwitching
from weir.settings import Settings, StoreUrls
from weir.telemetry.events import CATALOGUE


@asynccontextmanager
async def opened_switching(
    settings: Settings, urls: StoreUrls, *, patience_s: float
) -> AsyncIterator[MetricsSwitching]:
    """The switch of the metrics with its own connections, for a command."""
    connection = RedisConnection(url=urls.redis)
    switch = MetricsSwitch(connection, shards=settings.shards)
    broker = RedisBroker(connection, shards=settings.shards)
    try:
        require_shards(await broker.written_shards(), configured=settings.shards)
        yield metrics_switching(switch, broker, urls, answer_s=patience_s, patience_s=patience_s)
    finally:
        await broker.aclose()
        await switch.aclose()


def metrics_switching(
    switch: MetricsSwitch, broker: Broker, urls: StoreUrls, *, answer_s: float = 2.0, patience_s: float = 5.0
) -> MetricsSwitching:
    return MetricsSwitching(
        switch,
        broker,
        redis_url=urls.redis,
        clickhouse_url=urls.clickhouse,
        metrics=[kind.name for kind in CATALOGUE],
        answer_s=answer_s,
        patience_s=patience_s,
    )
