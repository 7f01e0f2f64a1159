"""Reading streams: what is there, what was dropped, what is done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from weir.errors import BrokerUnavailable, Misconfigured
from weir.telemetry.entries import Entries
from weir.telemetry.progress import read_lags
from weir.telemetry.store import StreamGap, StreamStore, Tail, _tail
from weir.telemetry.streams import GROUP, stream_key

KEY = stream_key("queue", 0)


@pytest.fixture
def redis(streams_url: str) -> Iterator[Redis]:
    client = Redis.from_url(streams_url)
    for number in range(1, 21):
        client.xadd(KEY, {"e": b"%d" % number}, id=f"{number}-0")
    yield client
    client.close()


@pytest.fixture
def store(streams_url: str) -> Iterator[StreamStore]:
    store = StreamStore(streams_url)
    yield store
    store.close()


def read(store: StreamStore, *, after: str, until: str) -> tuple[list[int], list[StreamGap]]:
    numbers: list[int] = []
    gaps: list[StreamGap] = []
    for content in store.read(KEY, after=after, until=until, chunk=3):
        if isinstance(content, Entries):
            numbers += content.ids[:, 0].tolist()
        else:
            gaps.append(content)
    return numbers, gaps


def test_a_range_is_read_in_runs_without_its_start(redis: Redis, store: StreamStore) -> None:
    assert read(store, after="0-0", until="20-0") == (list(range(1, 21)), [])
    assert read(store, after="5-0", until="11-0") == (list(range(6, 12)), [])
    assert read(store, after="20-0", until="20-0") == ([], [])


def test_what_redis_dropped_before_it_was_read_is_a_gap(redis: Redis, store: StreamStore) -> None:
    redis.xtrim(KEY, minid="9-0", approximate=False)
    numbers, gaps = read(store, after="4-0", until="12-0")
    assert numbers == [9, 10, 11, 12]
    assert gaps == [StreamGap(after="4-0", until="9-0", entries=None)]


def test_a_range_that_is_gone_altogether_is_one_gap(redis: Redis, store: StreamStore) -> None:
    redis.xtrim(KEY, minid="15-0", approximate=False)
    assert read(store, after="4-0", until="12-0") == (
        [],
        [StreamGap(after="4-0", until="12-0", entries=None)],
    )


def test_what_redis_dropped_before_the_first_read_is_a_gap_with_its_count(
    redis: Redis, store: StreamStore
) -> None:
    if "entries-added" not in redis.xinfo_stream(KEY):
        pytest.skip("this server does not count what it dropped")
    redis.xtrim(KEY, minid="9-0", approximate=False)
    numbers, gaps = read(store, after="0-0", until="12-0")
    assert numbers == [9, 10, 11, 12]
    assert gaps == [StreamGap(after="0-0", until="9-0", entries=8)]


def test_settling_trims_publishes_and_leaves_a_witness(redis: Redis, store: StreamStore) -> None:
    store.settle({KEY: "7-0"})
    store.settle({KEY: "8-0"})
    assert [entry[0] for entry in redis.xrange(KEY, count=2)] == [b"8-0", b"9-0"]
    (group,) = redis.xinfo_groups(KEY)
    assert (group["name"], group["last-delivered-id"]) == (GROUP.encode(), b"8-0")
    assert read(store, after="8-0", until="20-0") == (list(range(9, 21)), [])


def test_settling_a_stream_that_is_not_there_is_nothing(store: StreamStore) -> None:
    store.settle({stream_key("queue", 9): "8-0"})
    assert store.positions([stream_key("queue", 9)]) == ["0-0"]


def test_lag_is_what_waits_behind_the_published_position(redis: Redis, store: StreamStore) -> None:
    store.settle({KEY: "8-0"})
    (lag,) = read_lags(store, metrics=["queue", "worker"], shards=2, now_ms=3_008)
    assert (lag.metric, lag.shard, lag.events, lag.seconds) == ("queue", 0, 12, 3.0)
    store.settle({KEY: "20-0"})
    (lag,) = read_lags(store, metrics=["queue"], shards=1, now_ms=3_008)
    assert (lag.events, lag.seconds) == (0, 0.0)


def test_a_stream_that_was_never_read_lags_by_all_it_holds(redis: Redis, store: StreamStore) -> None:
    (lag,) = read_lags(store, metrics=["queue"], shards=1, now_ms=2_001)
    assert (lag.events, lag.seconds) == (20, 2.0)


def test_where_redis_counts_what_it_added_the_dropped_are_known() -> None:
    reply = {"length": 6, "entries-added": 40, "first-entry": (b"35-0", []), "last-entry": (b"40-0", [])}
    assert _tail(reply) == Tail(length=6, first_id="35-0", last_id="40-0", dropped=34)


def test_an_unreachable_redis_is_an_error_of_the_tree() -> None:
    with pytest.raises(BrokerUnavailable):
        StreamStore("redis://127.0.0.1:1/0", timeout_s=0.2).is_held()


def test_a_dropped_store_closes_its_connections(streams_url: str) -> None:
    """It does not wait until the driver's objects are collected, which ask each other in any order."""
    store = StreamStore(streams_url)
    store.is_held()
    driver = store._redis
    assert isinstance(driver, Redis)
    (connection,) = driver.connection_pool._available_connections
    assert connection.is_connected
    del store
    assert not connection.is_connected


def test_probes_look_up_many_ids_in_one_round_trip(redis: Redis, store: StreamStore) -> None:
    redis.xtrim(KEY, minid="4-0", approximate=False)
    assert store.neighbours(KEY, [2, 7, 20]) == [(None, (4, 0)), ((7, 0), (8, 0)), ((20, 0), None)]
    assert store.windows(KEY, [(1, 5), (6, 20), (30, 40)], limit=3) == [
        [(4, 0)],
        [(19, 0), (18, 0), (17, 0)],
        [],
    ]
    assert (store.last_until(KEY, "9-5"), store.last_until(KEY, "3-0")) == ("9-0", None)


def test_a_pipeline_with_another_number_of_shards_is_refused(redis: Redis, store: StreamStore) -> None:
    store.require_shards(8)
    redis.set("weir:shards", 4)
    store.require_shards(4)
    with pytest.raises(Misconfigured, match="set it to 4"):
        store.require_shards(8)
