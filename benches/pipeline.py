"""The pipeline from the streams to rows that can be queried: its rate, freshness, memory and exactness.

Redis, ClickHouse and Spark share the machine. The pipeline runs in its own process, as in production. It is
warm when it is measured, because the backlog is produced while a running pipeline is held.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from redis import Redis

from benches.children import child
from benches.percentiles import percentile_max_error
from benches.pipeline_events import Producer
from benches.pipeline_journal import batch_times_ms
from benches.pipeline_plain import POLL_S, PlainConsumer, read_per_second
from benches.pipeline_plain_rows import make_tables_of_attempts, measure_plain_rows
from benches.process_times import processor_s
from benches.servers import bench_redis
from weir.embedded.clickhouse import ClickHouseServer
from weir.embedded.ports import free_port
from weir.embedded.supervised import Supervised
from weir.pipeline.drift_audit import PipelineAuditor
from weir.telemetry.progress import read_status
from weir.telemetry.store import StreamStore
from weir.telemetry.streams import stream_key
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.migrate import drop_warehouse, migrate_warehouse

SHARDS = 4
QUEUES = 1_000
FRESH_RATE = 5_000
BATCH_EVENTS = 2_500
_SECRET = secrets.token_urlsafe(12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    events: int
    warm_events: int
    plain_s: float
    fresh_s: float
    many_queues: int
    """Queues of the measurement in which every event belongs to another queue."""
    batches: int
    """How many small batches are timed."""
    plain_rows: int
    task_rounds: int
    """How often the pipeline runs with one read task and with two, in turns."""


FULL = Size(
    events=1_000_000,
    warm_events=400_000,
    plain_s=15,
    fresh_s=30,
    many_queues=100_000,
    batches=40,
    plain_rows=400_000,
    task_rounds=2,
)
QUICK = Size(
    events=200_000,
    warm_events=100_000,
    plain_s=4,
    fresh_s=8,
    many_queues=20_000,
    batches=15,
    plain_rows=60_000,
    task_rounds=1,
)


def run(*, quick: bool, events: int | None = None, **_: Any) -> dict[str, Any]:
    """Measure the peers, then the pipeline, on the same servers."""
    size = QUICK if quick else FULL
    if events is not None:
        size = Size(**{**{name: getattr(size, name) for name in Size.__slots__}, "events": events})
    return asyncio.run(_measure(size))


async def _measure(size: Size) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        async with _servers(Path(folder)) as (redis_url, clickhouse_url):
            bench = _Bench(redis_url=redis_url, clickhouse_url=clickhouse_url, folder=Path(folder), size=size)
            plain = await asyncio.to_thread(bench.plain)
            async with bench.pipeline() as pid:
                figures = await asyncio.to_thread(bench.run, pid, plain)
            return {
                **figures,
                "two_tasks_ratio": await bench.two_tasks_ratio(),
                "batch_p50_ms": await bench.batch_p50_ms(tasks=1),
                "batch_of_tasks_p50_ms": await bench.batch_p50_ms(tasks=2),
                **await bench.plain_rows(),
            }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Landing:
    """How long a backlog took to land, and the processor time of all processes in that time."""

    events: int
    took_s: float
    processor_s: float

    @property
    def per_s(self) -> float:
        return self.events / self.took_s

    @property
    def core_s_per_million(self) -> float:
        return self.processor_s / self.events * 1_000_000


class _Bench:
    def __init__(self, *, redis_url: str, clickhouse_url: str, folder: Path, size: Size) -> None:
        self._redis_url = redis_url
        self._clickhouse_url = clickhouse_url
        self._folder = folder
        self._checkpoint = folder / "checkpoint"
        self._size = size
        self._redis = Redis.from_url(redis_url)
        self._store = StreamStore(redis_url)
        self._keys = [stream_key("queue", shard) for shard in range(SHARDS)]

    @asynccontextmanager
    async def pipeline(self, **settings: str) -> AsyncIterator[int]:
        """A running pipeline, in a process of its own; yields its process id."""
        command = ("-m", "weir.cli", "pipeline", "run")
        async with child(*command, folder=self._folder, **self._settings(), **settings) as one:
            started_ms = time.time() * 1_000
            await asyncio.to_thread(_until, lambda: self._runs_since(started_ms), 120)
            yield one.pid

    async def two_tasks_ratio(self) -> float:
        """How much faster two read tasks are than one."""
        rates: dict[int, list[float]] = {1: [], 2: []}
        for number in range(self._size.task_rounds):
            for tasks in (1, 2) if number % 2 == 0 else (2, 1):
                async with self.pipeline(WEIR_PIPELINE__MAX_READ_TASKS=str(tasks)):
                    rates[tasks] += await asyncio.to_thread(self._warm_backlogs)
        return round(statistics.median(rates[2]) / statistics.median(rates[1]), 2)

    async def batch_p50_ms(self, *, tasks: int) -> float:
        """How long a small batch takes in Spark in total. With several `tasks`, each stream is cut."""
        limits = {"WEIR_PIPELINE__MAX_READ_TASKS": str(tasks), "WEIR_PIPELINE__TRIGGER_MS": "50"}
        if tasks > 1:
            limits["WEIR_PIPELINE__READ_TASK_EVENTS"] = str(BATCH_EVENTS // (tasks * SHARDS))
        async with self.pipeline(**limits):
            await asyncio.to_thread(self._small_batches)
        # The first batches run on a cold JVM.
        return round(statistics.median(batch_times_ms(self._checkpoint)[-self._size.batches // 2 :]))

    def _small_batches(self) -> None:
        producer = Producer(self._redis, queues=QUEUES, shards=SHARDS, prefix=secrets.token_hex(4))
        for _ in range(self._size.batches):
            self._backlog(producer, BATCH_EVENTS)

    async def plain_rows(self) -> dict[str, Any]:
        """Measure plain rows, with a metric that this bench registers."""
        await make_tables_of_attempts(self._clickhouse_url)
        async with self.pipeline(WEIR_PIPELINE__METRICS="benches.pipeline_plain_rows:definitions"):
            return await asyncio.to_thread(
                measure_plain_rows,
                self._redis_url,
                self._clickhouse_url,
                rows=self._size.plain_rows,
                warm_rows=self._size.plain_rows // 2,
            )

    def _warm_backlogs(self) -> list[float]:
        producer = Producer(self._redis, queues=QUEUES, shards=SHARDS, prefix=secrets.token_hex(4))
        self._backlog(producer, self._size.warm_events)
        return [self._backlog(producer, self._size.events).per_s for _ in range(2)]

    def _runs_since(self, at_ms: float) -> bool:
        status = read_status(self._store)
        return status is not None and status.state == "running" and status.updated_ms > at_ms

    def _settings(self) -> dict[str, str]:
        """The settings with which the pipeline finds the servers."""
        return {
            "WEIR_REDIS_URL": self._redis_url,
            "WEIR_POSTGRES_URL": "postgresql://none@127.0.0.1:1/none",
            "WEIR_CLICKHOUSE_URL": self._clickhouse_url,
            "WEIR_SHARDS": str(SHARDS),
            "WEIR_EMBEDDED__DATA_DIR": str(self._folder / "data"),
            "WEIR_PIPELINE__CHECKPOINT": str(self._checkpoint),
        }

    def run(self, pipeline_pid: int, plain: dict[str, float]) -> dict[str, Any]:
        """Measure the pipeline with this process id, and compare it with the plain consumer."""
        memory = _Memory(pipeline_pid)
        producer = Producer(self._redis, queues=QUEUES, shards=SHARDS)
        for _ in range(2):
            self._backlog(producer, self._size.warm_events // 2)
        backlog, many_queues = self._backlog(producer, self._size.events), self._many_queues()
        rate = backlog.per_s
        freshness = self._freshness(producer)
        rss_mib = memory.stop()
        drift = self._drift()
        return {
            "events_per_s": round(rate),
            **{name: round(value) for name, value in plain.items()},
            "ratio_vs_plain": round(rate / plain["plain_consumer_per_s"], 1),
            "ratio_vs_unthrottled": round(rate / plain["plain_unthrottled_per_s"], 2),
            "ratio_to_limit": round(rate / plain["read_limit_per_s"], 2),
            **freshness,
            "rss_mib": round(rss_mib),
            "drift": drift,
            "events": self._size.events,
            "queues": QUEUES,
            "shards": SHARDS,
            "percentile_max_error": round(
                percentile_max_error(ClickHouseConnection(self._clickhouse_url)), 5
            ),
            "core_s_per_million": round(backlog.core_s_per_million, 2),
            "many_queues": self._size.many_queues,
            "events_per_s_many_queues": round(many_queues.per_s),
        }

    def plain(self) -> dict[str, float]:
        """Measure the plain consumer with its usual pause and without, and a process that only reads."""
        producer = Producer(self._redis, queues=QUEUES, shards=SHARDS)
        producer.produce(min(self._size.events, 150_000))
        url = self._clickhouse_url.replace("/default", "/plain")
        asyncio.run(migrate_warehouse(url))
        warehouse = ClickHouseConnection(url)
        consumer = PlainConsumer(self._redis, warehouse, self._keys)
        figures = {
            "plain_consumer_per_s": consumer.per_second(seconds=self._size.plain_s, poll_s=POLL_S),
            "plain_unthrottled_per_s": consumer.per_second(seconds=self._size.plain_s, poll_s=0),
            "read_limit_per_s": read_per_second(self._redis_url, self._keys),
        }
        consumer.close()
        warehouse.close()
        asyncio.run(drop_warehouse(url))
        self._redis.delete(*self._keys)
        return figures

    def _backlog(self, producer: Producer, count: int) -> _Landing:
        """Produce a backlog while the pipeline is held, and measure from its release until all has landed."""
        self._store.hold(600, holder="bench")
        producer.produce(count)
        before, spent_s = self._landed(), processor_s()
        self._store.release(holder="bench")
        began = time.monotonic()
        _until(lambda: self._landed() >= before + count, 600)
        return _Landing(events=count, took_s=time.monotonic() - began, processor_s=processor_s() - spent_s)

    def _many_queues(self) -> _Landing:
        """Land one backlog in which every event belongs to another queue."""
        producer = Producer(self._redis, queues=self._size.many_queues, shards=SHARDS, prefix="many")
        return self._backlog(producer, self._size.many_queues)

    def _freshness(self, producer: Producer) -> dict[str, Any]:
        """The time from appending an event to seeing its row, while others come at a steady rate."""
        traffic = threading.Thread(
            target=producer.produce_at, args=(FRESH_RATE,), kwargs={"seconds": self._size.fresh_s + 3}
        )
        traffic.start()
        time.sleep(2)
        probe = Producer(Redis.from_url(self._redis_url), queues=1, shards=SHARDS, prefix="probe")
        delays = _probe(probe, ClickHouseConnection(self._clickhouse_url), seconds=self._size.fresh_s)
        traffic.join()
        cuts = statistics.quantiles(delays, n=100)
        return {
            "freshness_p50_ms": round(statistics.median(delays)),
            "freshness_p99_ms": round(cuts[98]),
            "freshness_rate_per_s": FRESH_RATE,
            "freshness_probes": len(delays),
        }

    def _drift(self) -> int | None:
        """The drift that an audit finds; None if it could not finish."""
        warehouse = ClickHouseConnection(self._clickhouse_url)
        auditor = PipelineAuditor(self._store, warehouse, metrics=["queue"], shards=SHARDS)
        return auditor.audit({}, wait_s=60).drift

    def _landed(self) -> int:
        status = read_status(self._store)
        time.sleep(0.02)
        return status.events if status is not None else 0


class _Memory:
    """The most memory that a process and its children took together."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._peak = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        self._ended.set()
        self._thread.join()
        return self._peak

    def _watch(self) -> None:
        while not self._ended.wait(1):
            total = 0
            for process in (self._process, *self._process.children(recursive=True)):
                try:
                    total += process.memory_info().rss
                except psutil.Error:
                    continue
            self._peak = max(self._peak, total / 2**20)


def _probe(producer: Producer, warehouse: ClickHouseConnection, *, seconds: float) -> list[float]:
    """Append an event every tenth of a second; returns how long each took until the warehouse showed it."""
    sent: list[float] = []
    delays: list[float] = []
    ended = time.monotonic() + seconds
    while time.monotonic() < ended or len(delays) < len(sent):
        if time.monotonic() < ended and (not sent or time.time() - sent[-1] >= 0.1):
            sent.append(time.time())
            producer.produce(1)
        seen = _seen(warehouse)
        now = time.time()
        delays += [1_000 * (now - at) for at in sent[len(delays) : seen]]
        time.sleep(0.03)
    return delays


def _seen(warehouse: ClickHouseConnection) -> int:
    rows = warehouse.rows(
        "SELECT sum(events) AS n FROM queue_metrics_5s WHERE organization = 'bench' AND project = 'pipeline' "
        "AND environment = 'env-0' AND queue = 'probe:0'"
    )
    return int(rows[0]["n"])


def _until(condition: Callable[[], bool], wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the pipeline did not get there in time")
        time.sleep(0.02)


@asynccontextmanager
async def _servers(folder: Path) -> AsyncIterator[tuple[str, str]]:
    servers = (
        bench_redis(folder / "redis", password=_SECRET),
        ClickHouseServer(folder / "clickhouse", port=free_port(), password=_SECRET),
    )
    running = [
        Supervised(server, log=folder / f"{server.name}.log", report=lambda _: None) for server in servers
    ]
    for server in running:
        await server.start()
    try:
        await migrate_warehouse(servers[1].url)
        yield servers[0].url, servers[1].url
    finally:
        for server in running:
            await server.stop()
