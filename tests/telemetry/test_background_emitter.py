"""The emitter for users' programs: bounded, patient, never in the way, and announced before it writes."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from redis import Redis

from support.tcp_proxy import TcpProxy
from support.urls import with_database
from weir.metrics import Aggregate, EventKind, Field, MetricEmitter, MetricEvent
from weir.telemetry.codec import unpack
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import metric_layouts_key, stream_key

SENT = Field(name="sent", width=4, aggregates=(Aggregate.SUM,))
MAIL = EventKind(name="mail", dimensions=("sender",), fields=(SENT,))


@pytest.fixture
def url(redis_url: str) -> Iterator[str]:
    found = with_database(redis_url, "7")
    client = Redis.from_url(found)
    client.flushdb()
    yield found
    client.flushdb()
    client.close()


def sent(url: str, shards: int = 1) -> list[int]:
    with Redis.from_url(url) as redis:
        found = [redis.xrange(stream_key("mail", shard)) for shard in range(shards)]
    return [unpack(MAIL, fields[b"e"]).values["sent"] for entries in found for _, fields in entries]


def mail(number: int = 1, sender: str = "ann") -> MetricEvent:
    return MetricEvent(dimensions=(sender,), values={"sent": number})


def test_what_threads_emit_is_sent_once_and_in_order(url: str) -> None:
    def work(name: str) -> None:
        for number in range(500):
            emitter.emit(MAIL, mail(number, name))

    with MetricEmitter(url, interval_s=0.01) as emitter:
        threads = [threading.Thread(target=work, args=(name,)) for name in ("ann", "bob", "cid")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(sent(url)) == sorted([*range(500)] * 3)
    with Redis.from_url(url) as redis:
        events = [unpack(MAIL, fields[b"e"]) for _, fields in redis.xrange(stream_key("mail", 0))]
    assert [one.values["sent"] for one in events if one.dimensions == ("bob",)] == [*range(500)]
    assert (emitter.counts.emitted, emitter.counts.sent, emitter.counts.dropped) == (1_500, 1_500, 0)


def test_the_version_is_announced_where_the_pipeline_looks_and_never_lowered(url: str) -> None:
    newer = replace(MAIL, earlier=(MAIL.fields,))
    for kind in (newer, MAIL):
        with MetricEmitter(url, shards=2) as emitter:
            emitter.emit(kind, mail())
    store = StreamStore(url)
    assert store.read_announced(["event.mail"], shards=2) == {"event.mail": 2}
    store.close()
    with Redis.from_url(url) as redis:
        # The brokers' own note stays as it was: they refuse a shard with layouts that they do not know.
        assert sorted(redis.keys("*layouts*")) == [metric_layouts_key(shard).encode() for shard in range(2)]
        assert redis.hgetall(metric_layouts_key(1)) == {b"event.mail": b"2"}


async def test_events_wait_while_redis_is_away_and_emit_returns_at_once(url: str) -> None:
    async with TcpProxy.to(url) as proxy:
        proxy.refuse()
        emitter = MetricEmitter(proxy.url, interval_s=0.01, capacity=50)
        began = time.perf_counter()
        for number in range(80):
            emitter.emit(MAIL, mail(number))
        assert time.perf_counter() - began < 0.5
        while not emitter.counts.dropped:
            await _turn()
        proxy.heal()
        while emitter.counts.sent + emitter.counts.dropped < 80:
            await _turn()
        emitter.close()
    kept = sent(url)
    # What the thread had taken before is kept beside the newest 50.
    assert kept == sorted(set(kept))
    assert kept[-50:] == [*range(30, 80)]
    assert len(kept) == 80 - emitter.counts.dropped


async def _turn() -> None:
    await asyncio.sleep(0.01)


async def test_closing_gives_up_after_its_time(url: str) -> None:
    async with TcpProxy.to(url) as proxy:
        proxy.blackhole()
        emitter = MetricEmitter(proxy.url)
        emitter.emit(MAIL, mail())
        began = time.perf_counter()
        emitter.close(timeout_s=0.2)
        assert time.perf_counter() - began < 1.5
        assert emitter.counts.sent == 0


def test_what_cannot_be_packed_is_counted_and_raises_nothing(url: str) -> None:
    with MetricEmitter(url) as emitter:
        emitter.emit(MAIL, MetricEvent(dimensions=("ann",), values={"snet": 1}))
        emitter.emit(MAIL, MetricEvent(dimensions=("x" * 300,), values={"sent": 1}))
        emitter.emit(MAIL, mail(7))
    assert sent(url) == [7]
    assert emitter.counts.dropped == 2


def test_an_address_that_is_no_redis_is_refused_where_it_is_given() -> None:
    with pytest.raises(ValueError, match="scheme"):
        MetricEmitter("http://127.0.0.1:1")


def _emit_in_child(emitter: MetricEmitter) -> None:
    emitter.emit(MAIL, mail(2))
    emitter.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_sends_its_own_events_and_none_of_its_parent(url: str) -> None:
    emitter = MetricEmitter(url, interval_s=60)
    emitter.emit(MAIL, mail(1))
    child = multiprocessing.get_context("fork").Process(target=_emit_in_child, args=(emitter,))
    child.start()
    child.join(10)
    assert sent(url) == [2]
    emitter.close()
    assert sent(url) == [2, 1]
