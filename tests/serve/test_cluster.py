"""A whole process on a Redis Cluster, reached by its URL alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.redis_cluster import RunningCluster
from weir.exchange.seam import Pushed, PushItem, Queued
from weir.model.message import NewMessage, Settlement
from weir.model.names import EnvironmentRef
from weir.serve.build import open_process
from weir.settings import EmbeddedSettings, Settings, StoreUrls
from weir.spec.ir import QueueSpec
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import stream_key


async def test_messages_pass_and_telemetry_lands_in_the_streams(
    redis_cluster: RunningCluster,
    database_url: str,
    warehouse_url: str,
    environment: EnvironmentRef,
    tmp_path: Path,
) -> None:
    settings = Settings(redis_url=redis_cluster.url, embedded=EmbeddedSettings(data_dir=tmp_path))
    urls = StoreUrls(redis=redis_cluster.url, postgres=database_url, clickhouse=warehouse_url)
    async with open_process(settings, urls, accept_loss=True) as process, process.supervisor.running():
        services, queue = process.services, environment.queue("work")
        for probe in services.probes:
            await probe.check()
        await services.broker.define(queue, QueueSpec(name="work"))
        item = PushItem(queue=queue, message=NewMessage(payload=b"x"))
        async with asyncio.timeout(10):
            # Until this process has its leave to go direct, pushes are queued and come in a moment later.
            (answer,) = await services.pusher.push([item])
            (got,) = await services.broker.dequeue(queue, consumer="c", wait_ms=9_000)
        assert isinstance(answer, Pushed | Queued)
        assert answer.message_id == got.message_id
        assert await services.broker.ack([got.lease]) == [Settlement.DONE]
    store = StreamStore(redis_cluster.url)
    tails = store.tails([stream_key("queue", shard) for shard in range(settings.shards)])
    assert sum(tail.length for tail in tails if tail) >= 3
    store.close()
