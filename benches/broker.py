"""`weir bench broker`: how fast messages go in and out, beside other queues on the same Redis."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import uvloop

from benches import broker_load as load
from benches import broker_peers as peers
from benches.servers import bench_redis
from weir.broker.redis import RedisBroker
from weir.broker.runner import Client, RedisConnection, connect
from weir.embedded.supervised import Supervised
from weir.model.names import EnvironmentRef, QueueRef

Figures = dict[str, Any]
Samples = dict[str, list[float]]
_NOTED_US = 5_000


def run(*, quick: bool, **_: Any) -> Figures:
    """Measure Weir and its peers; then, on another server, with every write on disk before its reply."""
    messages = 20_000 if quick else 100_000
    with _redis() as url:
        figures = _measure_all(url, messages=messages, quick=quick)
    with _redis(durable=True) as url:
        figures["durable"] = _durable(url, messages=messages // 10, with_peers=not quick)
    return figures


@contextmanager
def _redis(*, durable: bool = False) -> Iterator[str]:
    """The address of a fresh server."""
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        server = Supervised(
            bench_redis(Path(folder) / "redis", password="bench", durable=durable),
            log=Path(folder) / "redis.log",
            report=lambda _: None,
        )
        _await(server.start())
        try:
            yield server.server.url
        finally:
            _await(server.stop())


def _await(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _measure_all(url: str, *, messages: int, quick: bool) -> Figures:
    rounds, samples = 2 if quick else 3, Samples()
    _await(_throughput(url, samples, messages=messages, rounds=rounds))
    found = peers.measure(url, jobs=1_000 if quick else 5_000, batch=load.BATCH, flush=lambda: _flush(url))
    # Weir runs before and after the peers, so that a machine that became busier shows in the spread.
    _await(_throughput(url, samples, messages=messages, rounds=rounds))
    fast = _summary(samples)
    return {
        **fast,
        "peers": found,
        **_ratios(fast, found),
        **_await(_metrics_cost(url, messages=messages // 2, rounds=3 if quick else 7)),
        **_await(_depth(url, deep=100_000 if quick else 1_000_000)),
        **_await(_tenants(url, quick=quick)),
        "batch": load.BATCH,
        "payload_bytes": len(load.PAYLOAD),
        "durability": "fast",
        "cpus": os.cpu_count(),
    }


def _durable(url: str, *, messages: int, with_peers: bool) -> Figures:
    """Measure the same with every write on disk before its reply."""
    samples: Samples = {}
    _await(_throughput(url, samples, messages=messages, rounds=3))
    figures = _summary(samples)
    if with_peers:
        found = peers.measure(url, jobs=1_000, batch=load.BATCH, flush=lambda: _flush(url))
        figures.update({"peers": found, **_ratios(figures, found)})
    return figures


def _flush(url: str) -> None:
    _await(_command(url, "FLUSHALL"))


async def _command(url: str, *words: Any) -> Any:
    client = connect(RedisConnection(url=url), timeout_s=60)
    try:
        return await client.execute_command(*words)
    finally:
        await client.aclose()


async def _fresh_queue(broker: RedisBroker) -> QueueRef:
    """A new queue of a new tenant."""
    queue = EnvironmentRef(organization=uuid4().hex, project="bench", environment="e").queue("bench")
    await broker.define(queue, load.SPEC)
    return queue


async def _throughput(url: str, samples: Samples, *, messages: int, rounds: int) -> None:
    """Add rounds of every figure to the samples; one client process."""
    broker = RedisBroker(RedisConnection(url=url))
    for _ in range(rounds):
        queue = await _fresh_queue(broker)
        found = {
            **await load.enqueue_single(broker, queue, messages // 20),
            "enqueue_batch_per_s": await load.enqueue_batches(broker, queue, messages),
            "dequeue_ack_batch_per_s": await load.drain(broker, queue, messages // 2),
            "process_per_s": await load.process(broker, queue, messages // 2),
            **await load.latency(broker, await _fresh_queue(broker), 200, per_s=200),
        }
        for name, value in found.items():
            samples.setdefault(name, []).append(value)
    await broker.aclose()


def _summary(samples: Samples) -> Figures:
    """The medians, and the spread of the two figures from which ratios are computed."""
    digits = {name: 3 if name.endswith("_ms") else None for name in samples}
    figures: Figures = {name: round(median(values), digits[name]) for name, values in samples.items()}
    figures["enqueue_batch_spread"] = _spread(samples["enqueue_batch_per_s"])
    figures["process_spread"] = _spread(samples["process_per_s"])
    return figures


def _spread(values: list[float]) -> list[int]:
    return [round(min(values)), round(max(values))]


def _ratios(ours: Figures, found: dict[str, Figures]) -> Figures:
    ran = {name: figures for name, figures in found.items() if "failed" not in figures}
    python = [figures["process_per_s"] for name, figures in ran.items() if name != "bullmq"]
    bulk = [figures["bulk_enqueue_per_s"] for figures in ran.values()]
    bullmq = ran.get("bullmq")
    return {
        "ratio_bulk_vs_best_peer": round(ours["enqueue_batch_per_s"] / max(bulk), 2) if bulk else None,
        "ratio_process_vs_best_python": round(ours["process_per_s"] / max(python), 2) if python else None,
        "ratio_process_vs_bullmq": round(ours["process_per_s"] / bullmq["process_per_s"], 2)
        if bullmq
        else None,
    }


async def _metrics_cost(url: str, *, messages: int, rounds: int) -> Figures:
    """The ratio of throughput with metrics on to off, in turns on one server.

    A round enqueues, dequeues and acks all messages.
    """
    ratios = {"batch": [], "single": []}  # type: dict[str, list[float]]
    brokers = {on: RedisBroker(RedisConnection(url=url), metrics=on) for on in (True, False)}
    for number in range(rounds):
        turns = list(brokers.items())[:: 1 if number % 2 else -1]
        seconds = {
            on: (await _cycle(broker, messages), await _single_cycle(broker, messages // 20))
            for on, broker in turns
        }
        ratios["batch"].append(seconds[False][0] / seconds[True][0])
        ratios["single"].append(seconds[False][1] / seconds[True][1])
    for broker in brokers.values():
        await broker.aclose()
    return {
        "metrics_on_off": round(median(ratios["batch"]), 3),
        "metrics_on_off_spread": [round(min(ratios["batch"]), 3), round(max(ratios["batch"]), 3)],
        "metrics_on_off_single": round(median(ratios["single"]), 3),
    }


async def _cycle(broker: RedisBroker, messages: int) -> float:
    queue = await _fresh_queue(broker)
    put = await load.enqueue_batches(broker, queue, messages)
    return messages / put + messages / await load.drain(broker, queue, messages)


async def _single_cycle(broker: RedisBroker, messages: int) -> float:
    queue = await _fresh_queue(broker)
    return messages / (await load.enqueue_single(broker, queue, messages))["enqueue_single_per_s"]


async def _depth(url: str, *, deep: int) -> Figures:
    """Measure with a deep backlog; SLOWLOG tells the slowest script."""
    client: Client = connect(RedisConnection(url=url), timeout_s=60)
    await client.execute_command("FLUSHALL")
    await client.execute_command("CONFIG", "SET", "slowlog-log-slower-than", _NOTED_US)
    await client.execute_command("CONFIG", "SET", "slowlog-max-len", 1_000)
    await client.execute_command("SLOWLOG RESET")
    broker = RedisBroker(RedisConnection(url=url))
    environment = EnvironmentRef(organization="deep", project="bench", environment="e")
    figures = await load.deep_backlog(
        broker, environment, shallow=1_000, deep=deep, sample=5_000, filled=partial(_quiet, client)
    )
    slow = [entry for entry in await client.execute_command("SLOWLOG GET", 1_000) if _is_script(entry)]
    await broker.aclose()
    await client.execute_command("FLUSHALL")
    await client.aclose()
    return {**figures, "slowest_script_ms": round(max((e["duration"] for e in slow), default=0) / 1_000, 1)}


async def _quiet(client: Client) -> None:
    """Wait until the server has rewritten its files, which filling it started and which takes a processor."""
    while True:
        found = await client.execute_command("INFO", "persistence")
        if not found["aof_rewrite_in_progress"] and not found["rdb_bgsave_in_progress"]:
            return
        await asyncio.sleep(0.1)


def _is_script(entry: dict[str, Any]) -> bool:
    return bool(entry["command"].upper().startswith(b"EVAL"))


async def _tenants(url: str, *, quick: bool) -> Figures:
    broker = RedisBroker(RedisConnection(url=url))
    figures = await load.noisy_tenant(
        broker, queues=2_000 if quick else 10_000, probes=400 if quick else 2_000, per_s=200
    )
    await broker.aclose()
    return figures
