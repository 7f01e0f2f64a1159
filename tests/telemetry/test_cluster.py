"""Streams of a Redis Cluster are read as those of one server are, by the scheme of the URL alone."""

from __future__ import annotations

from support.redis_cluster import RunningCluster
from weir.redis_client import connect
from weir.telemetry.codec import MetricEvent, unpack
from weir.telemetry.emitter import StreamEmitter
from weir.telemetry.entries import Entries
from weir.telemetry.events import WORKER
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import stream_key
from weir.telemetry.tails import RedisTails

SHARDS = 8
HOST = "host-of-this-test"
KEYS = [stream_key("worker", shard) for shard in range(SHARDS)]


async def test_what_is_emitted_into_a_cluster_is_read_and_settled(redis_cluster: RunningCluster) -> None:
    client = connect(redis_cluster.url)
    emitter = StreamEmitter(client, shards=SHARDS)
    for number in range(50):
        emitter.emit(
            WORKER, MetricEvent(dimensions=("api", HOST, str(number), "1"), values={"jobs_done": number})
        )
    await emitter.flush()
    assert emitter.counts.sent == 50
    ends = await RedisTails(client, shards=SHARDS).tails("worker")
    await client.aclose()

    store = StreamStore(redis_cluster.url)
    tails = store.tails(KEYS)
    assert {shard for shard, tail in enumerate(tails) if tail} == set(ends)
    done = []
    for key, tail in zip(KEYS, tails, strict=True):
        for run in store.read(key, after="0-0", until=tail.last_id) if tail else ():
            assert isinstance(run, Entries)
            ends_at = run.lengths.cumsum()
            starts_at = ends_at - run.lengths
            events = [
                unpack(WORKER, run.data[start:end]) for start, end in zip(starts_at, ends_at, strict=True)
            ]
            # Processes of other tests may have told of themselves in this cluster.
            done += [event.values["jobs_done"] for event in events if HOST in event.dimensions]
    assert sorted(done) == list(range(50))
    store.settle({key: tail.last_id for key, tail in zip(KEYS, tails, strict=True) if tail})
    assert [tail.length for tail in store.tails(KEYS) if tail] == [1] * len(ends)
    assert store.positions(KEYS) == [tail.last_id if tail else "0-0" for tail in tails]
    store.close()
