"""`weir bench client`: the calls of Weir's users, and of users of other queues, in the same run.

The client runs in its own process, and the worker is the real `weir worker` with type check, mapping, lease
renewal and records. Peers are called as their users call them, on a Redis of the same kind. Weir is measured
before and after the peers, so that a machine that became busier shows in the spread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import uvloop

from benches import broker_peers as peers
from benches.broker_load import percentile_ms
from benches.client_calls import CALLERS, CONCURRENT, NOOP, PACE_PER_S, PACED, POP
from benches.client_house import ClientHouse, memory_mib, open_house
from benches.client_tasks import SYNC_TASKS, TASKS
from benches.http import batch_rates
from benches.servers import bench_redis
from weir.broker.runner import RedisConnection, connect
from weir.embedded.supervised import Supervised

Figures = dict[str, Any]
Samples = dict[str, list[float]]
QUICK_PEERS = ("huey", "dramatiq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many rounds, messages, jobs and seconds each measurement takes."""

    rounds: int
    single: int
    concurrent: int
    many: int
    direct_single: int
    jobs: int
    sync_jobs: int
    paced: int
    http_s: float
    peer_jobs: int
    python_peers: tuple[str, ...]


QUICK = Sizes(
    rounds=1, single=1_000, concurrent=12_800, many=80_000, direct_single=10_000, jobs=20_000,
    sync_jobs=5_000, paced=600, http_s=1.0, peer_jobs=4_000, python_peers=QUICK_PEERS,
)  # fmt: skip
FULL = Sizes(
    rounds=2, single=3_000, concurrent=25_600, many=200_000, direct_single=20_000, jobs=50_000,
    sync_jobs=20_000, paced=2_000, http_s=2.0, peer_jobs=5_000, python_peers=peers.TASK_PEERS,
)  # fmt: skip


def run(*, quick: bool, **_: Any) -> Figures:
    """All figures; with `quick` in about a minute."""
    return uvloop.run(measure(QUICK if quick else FULL))


async def measure(sizes: Sizes) -> Figures:
    samples: Samples = {}
    memory: Figures = {}
    async with open_house() as house:
        for _ in range(sizes.rounds):
            await _round(house, sizes, samples, memory)
        found = await _peers(house, sizes)
        for _ in range(sizes.rounds):
            await _round(house, sizes, samples, memory)
        waits = await _handler_waits(house, sizes.paced)
    figures = _summary(samples)
    return {
        **figures,
        **_against_peers(figures, found),
        "handler_p50_ms": percentile_ms(waits, 0.5),
        "handler_p99_ms": percentile_ms(waits, 0.99),
        "peers": found,
        "memory_mib": memory,
        "spread": {name: [_rounded(min(values)), _rounded(max(values))] for name, values in samples.items()},
        "rounds": 2 * sizes.rounds,
        "concurrent": CONCURRENT,
        "pop": POP,
        "callers": CALLERS,
        "pace_per_s": PACE_PER_S,
        "cpus": os.cpu_count(),
    }


async def _round(house: ClientHouse, sizes: Sizes, samples: Samples, memory: Figures) -> None:
    """Take one sample of every figure. Messages that are pushed here are consumed here."""
    calls = {"single": sizes.single, "concurrent": sizes.concurrent, "many": sizes.many}
    found: Figures = {}
    for name, count in calls.items():
        found |= await _call(house, name, count, memory)
    limit = await batch_rates(house.url, token=house.token, seconds=sizes.http_s)
    # Other messages stay in the queue: those of the bare loop and of the warm-up.
    found |= await _call(house, "consume", sizes.single + sizes.concurrent + sizes.many, memory)
    found |= await _direct(house, sizes, memory)
    found |= await _work(house, sizes.jobs, memory)
    found |= await _run_tasks(house, sizes, memory)
    found["http_push_batch_per_s"] = limit.push_per_s
    found["http_pop_and_ack_batch_per_s"] = limit.pop_and_ack_per_s
    found["ratio_many_vs_http"] = found["push_many_per_s"] / limit.push_per_s
    found["ratio_consume_vs_http"] = found["consume_per_s"] / limit.pop_and_ack_per_s
    memory["api"] = memory_mib(house.api)
    for name, value in found.items():
        samples.setdefault(name, []).append(value)


async def _direct(house: ClientHouse, sizes: Sizes, memory: Figures) -> Figures:
    """The same in direct mode. Messages that are pushed here are consumed here."""
    found = await _call(house, "direct_single", sizes.direct_single, memory)
    found |= await _call(house, "direct_many", sizes.many, memory)
    return found | await _call(house, "direct_consume", sizes.direct_single + sizes.many, memory)


async def _call(house: ClientHouse, name: str, count: int, memory: Figures) -> Figures:
    found = await house.call(name, count)
    memory[f"client_{name}"] = found.pop("memory_mib")
    return found


async def _work(house: ClientHouse, jobs: int, memory: Figures) -> Figures:
    """No-op jobs through one real worker, from its first handler call to its last."""
    await house.call("fill", jobs)
    async with house.worker(NOOP) as worker:
        note = await house.note("noop")
        memory["worker"] = memory_mib(worker)
    return {"worker_per_s": _rate(note)}


async def _run_tasks(house: ClientHouse, sizes: Sizes, memory: Figures) -> Figures:
    """No-op tasks by function: pushed by their app, and run by one real worker."""
    found = await _call(house, "tasks", sizes.jobs, memory)
    async with house.task_worker(TASKS) as worker:
        note = await house.note("tasks")
        memory["task_worker"] = memory_mib(worker)
    await house.call("sync_tasks", sizes.sync_jobs)
    async with house.task_worker(SYNC_TASKS):
        sync_note = await house.note("sync_tasks")
    found["tasks_per_s"] = _rate(note)
    found["tasks_end_to_end_per_s"] = peers.end_to_end(found["tasks_push_many_per_s"], found["tasks_per_s"])
    found["sync_tasks_per_s"] = _rate(sync_note)
    return found


def _rate(note: Figures) -> float:
    return float((note["count"] - 1) * 1e9 / note["took_ns"])


async def _handler_waits(house: ClientHouse, count: int) -> list[float]:
    """Seconds from a push to the first line of its handler in a worker that waits for work."""
    async with house.worker(PACED):
        # Warm-up: the first messages arrive while the worker is still starting.
        await house.call("pace", PACE_PER_S)
        await house.note("paced")
        await house.call("pace", count)
        note = await house.note("paced")
    return [wait / 1e9 for wait in note["waits_ns"]]


async def _peers(house: ClientHouse, sizes: Sizes) -> dict[str, Figures]:
    async with _peers_redis(house.folder / "peers") as url, _peers_postgres(house) as postgres_url:

        def flush() -> None:
            asyncio.run(_flush(url))

        return await asyncio.to_thread(
            peers.measure,
            url,
            jobs=sizes.peer_jobs,
            batch=100,
            flush=flush,
            python_peers=sizes.python_peers,
            postgres_url=postgres_url,
        )


@asynccontextmanager
async def _peers_redis(folder: Path) -> AsyncIterator[str]:
    """A Redis only for the peers, of the same kind as Weir's, because it is emptied for each peer."""
    server = Supervised(
        bench_redis(folder, password="bench"), log=folder.with_suffix(".log"), report=lambda _: None
    )
    await server.start()
    try:
        yield server.server.url
    finally:
        await server.stop()


@asynccontextmanager
async def _peers_postgres(house: ClientHouse) -> AsyncIterator[str]:
    """A database only for the peers, on the server that Weir uses, which is idle while they run."""
    async with await psycopg.AsyncConnection.connect(house.postgres_url, autocommit=True) as connection:
        await connection.execute("CREATE DATABASE peers")
        try:
            yield urlunsplit(urlsplit(house.postgres_url)._replace(path="/peers"))
        finally:
            await connection.execute("DROP DATABASE peers WITH (FORCE)")


async def _flush(url: str) -> None:
    client = connect(RedisConnection(url=url), timeout_s=60)
    try:
        await client.execute_command("FLUSHALL")
    finally:
        await client.aclose()


def _summary(samples: Samples) -> Figures:
    return {name: _rounded(median(values)) for name, values in samples.items()}


def _rounded(value: float) -> float:
    return round(value) if value >= 100 else round(value, 3)


def _against_peers(ours: Figures, found: dict[str, Figures]) -> Figures:
    ran = {name: figures for name, figures in found.items() if "failed" not in figures}
    python = [figures["process_per_s"] for name, figures in ran.items() if name != "bullmq"]
    both = [figures["end_to_end_per_s"] for name, figures in ran.items() if name != "bullmq"]
    bullmq, dramatiq = ran.get("bullmq"), ran.get("dramatiq")
    bulk = [figures["bulk_enqueue_per_s"] for figures in ran.values()]
    return {
        "ratio_direct_single_vs_dramatiq": round(ours["direct_single_per_s"] / dramatiq["enqueue_per_s"], 2)
        if dramatiq
        else None,
        "ratio_direct_bulk_vs_best_peer": round(ours["direct_bulk_per_s"] / max(bulk), 2) if bulk else None,
        "ratio_worker_vs_best_python": round(ours["worker_per_s"] / max(python), 2) if python else None,
        "ratio_tasks_vs_best_python": round(ours["tasks_end_to_end_per_s"] / max(both), 2) if both else None,
        "ratio_task_worker_vs_best_python": round(ours["tasks_per_s"] / max(python), 2) if python else None,
        "ratio_worker_vs_bullmq": round(ours["worker_per_s"] / bullmq["process_per_s"], 2)
        if bullmq
        else None,
    }
