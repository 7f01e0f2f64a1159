"""`weir bench load`: four times the capacity of two API processes, with admission and without.

A push carries two hundred messages, so that the work of the servers outweighs the work of the generator and
the kernel on the same processors, and four times the capacity can really be offered. The capacity is the rate
of a closed loop of connections. Then pushes arrive at four times that rate in an open loop, from producers
that wait for half a second and do not repeat refused pushes. Goodput counts pushes that were answered in time
and whose messages were in their queue by the end of the stretch.

The speed of a shared machine changes by half within a minute. So goodput at overload is compared with goodput
at capacity in short stretches that take turns, and Redis is kept from rewriting its file.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from redis.asyncio import Redis

from benches.figures import say
from benches.http_load import Load, generate, request
from benches.load_check import drained_after_s, estimates_within, verdict
from benches.load_drain import drain
from benches.load_house import (
    ApiProcess,
    api_processes,
    api_with_and_without,
    prepare,
    redis_cpu_s,
    watch,
)
from benches.load_traffic import TIMED_OUT, Generator, Traffic
from benches.servers import bench_stack
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.operations.queue import OperationQueue
from weir.serve.bootstrap import DEFAULT
from weir.settings import StoreUrls, load_settings
from weir.stores.migrations import migrate_stores

OVERLOAD = 4
BATCH = 200
PATIENCE_S = 0.5
KEYS = 2_000
CONNECTIONS = 16
TURN_S = 6.0
STRETCH_S = 0.3


def run(*, quick: bool, **_: Any) -> dict[str, Any]:
    """All figures; with `quick` within a minute."""
    return uvloop.run(_run(quick=quick))


async def _run(*, quick: bool) -> dict[str, Any]:
    seconds = 6.0 if quick else 60.0
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as name:
        folder = Path(name)
        async with bench_stack(folder) as stack:
            await migrate_stores(stack.urls)
            token = await prepare(stack.urls, folder)
            await _without_rewrites(stack.urls)
            _say("how fast one processor drains")
            figures = await drain(stack.urls, operations=4_000 if quick else 20_000)
            async with api_processes(folder, count=2, admission=False) as processes:
                _say("capacity of two processes")
                capacity = await _capacity(processes, token, rounds=4, seconds=1.5 if quick else 6.0)
                _say(f"{OVERLOAD} times {capacity:.0f} pushes per second, without admission")
                figures |= await _collapse(processes, token, capacity=capacity, seconds=min(seconds, 20.0))
            async with api_processes(folder, count=2, admission=True) as processes:
                _say("capacity with admission, which warms up as well")
                guarded = await _capacity(processes, token, rounds=4, seconds=1.5 if quick else 6.0)
                _say("the same overload with admission")
                figures |= await _overload(stack.urls, processes, token, capacity=capacity, seconds=seconds)
                _say("capacity and overload in turns")
                pairs = 3 if quick else 8
                figures |= await _goodput_in_turns(
                    stack.urls, processes, token, capacity=capacity, pairs=pairs
                )
            _say("what admission costs")
            figures |= await _cost(folder, token, blocks=3 if quick else 12)
    return {
        "capacity_per_s": round(capacity),
        "messages_a_push": BATCH,
        "capacity_messages_per_s": round(capacity * BATCH),
        "capacity_with_admission_per_s": round(guarded),
        **figures,
        "cpus": os.cpu_count(),
        "processes": 2,
    }


def _say(text: str) -> None:
    say(f"load: {text}")


def _push(token: str, queue: str, producer: int, number: int, *, messages: int) -> bytes:
    item = b'{"queue":"%b","key":"p%d","payload":"%d-%d"}' % (queue.encode(), producer, producer, number)
    return request("/api/v1/push", b'{"items":[' + b",".join([item] * messages) + b"]}", token=token)


async def _closed_loop(
    process: ApiProcess, token: str, *, seconds: float, connections: int, messages: int
) -> Load:
    numbers = itertools.count()
    return await generate(
        f"http://127.0.0.1:{process.port}",
        lambda: _push(token, "calm", next(numbers) % KEYS, 0, messages=messages),
        seconds=seconds,
        connections=connections,
    )


async def _capacity(processes: list[ApiProcess], token: str, *, rounds: int, seconds: float) -> float:
    """Pushes per second of both processes in a closed loop: the median of the rounds after a warm-up."""
    rates = []
    for _ in range(rounds):
        loops = (
            _closed_loop(one, token, seconds=seconds, connections=CONNECTIONS // 2, messages=BATCH)
            for one in processes
        )
        rates.append(sum(load.per_s for load in await asyncio.gather(*loops)))
    return statistics.median(rates[1:])


async def _overload(
    urls: StoreUrls, processes: list[ApiProcess], token: str, *, capacity: float, seconds: float
) -> dict[str, Any]:
    queue = DEFAULT.queue("load")
    broker = RedisBroker(RedisConnection(url=urls.redis), shards=load_settings().shards)
    async with Database(urls.postgres, max_size=2) as database:
        watching = asyncio.create_task(watch(processes))
        traffic = await _traffic(processes, token, "load", per_s=OVERLOAD * capacity, seconds=seconds)
        still_queued = await OperationQueue(database).depth()
        drain_s = await drained_after_s(database)
        watching.cancel()
        memory = (await asyncio.gather(watching, return_exceptions=True))[0]
        found = await verdict(broker, queue, traffic.accepted, messages=BATCH)
        right = await estimates_within(database, traffic.estimates, factor=2.0)
    await broker.aclose()
    goodput = _goodput(traffic, still_queued)
    return {
        "goodput_of_closed_loop": round(goodput / capacity, 3),
        "goodput_per_s": round(goodput),
        **_described(traffic, capacity=capacity),
        "accepted": len(traffic.accepted),
        "lost": found.lost,
        "duplicates": found.duplicates,
        "out_of_order": found.out_of_order,
        "p99_202_ms": traffic.p99_ms(202),
        "p99_429_ms": traffic.p99_ms(429),
        "queued_at_the_end": still_queued,
        "drain_s": round(drain_s, 2),
        "estimates_within_factor_2": None if right is None else round(right, 3),
        "seconds": seconds,
        "memory_mib": memory if isinstance(memory, list) else [],
    }


def _goodput(traffic: Traffic, still_queued: int) -> float:
    """Pushes per second that were answered in time and executed."""
    return (len(traffic.accepted) - min(still_queued, traffic.count(202))) / traffic.seconds


async def _goodput_in_turns(
    urls: StoreUrls, processes: list[ApiProcess], token: str, *, capacity: float, pairs: int
) -> dict[str, Any]:
    """The ratio of goodput at overload to goodput at capacity, pair by pair."""
    ratios, seen = [], []
    async with Database(urls.postgres, max_size=1) as database:
        for turn in range(pairs):
            goodput = {}
            for load in (1, OVERLOAD) if turn % 2 else (OVERLOAD, 1):
                traffic = await _traffic(processes, token, "turns", per_s=load * capacity, seconds=TURN_S)
                goodput[load] = _goodput(traffic, await OperationQueue(database).depth())
                await drained_after_s(database)
            ratios.append(goodput[OVERLOAD] / goodput[1])
            seen.append([round(goodput[1]), round(goodput[OVERLOAD])])
    return {
        "goodput_ratio": round(statistics.median(ratios), 3),
        "goodput_ratio_quartiles": _quartiles(ratios),
        "goodput_at_capacity_and_overload_per_s": seen,
    }


async def _without_rewrites(urls: StoreUrls) -> None:
    """Keep Redis from rewriting its file, whose cost would fall on the wrong measurement."""
    async with Redis.from_url(urls.redis) as client:
        await client.config_set("auto-aof-rewrite-percentage", 0)


def _described(traffic: Traffic, *, capacity: float) -> dict[str, Any]:
    return {
        "offered_ratio": round(traffic.attempts / traffic.seconds / capacity, 2),
        "unsent": traffic.unsent,
        "attempts": traffic.attempts,
        "answers": {str(status): count for status, count in sorted(traffic.statuses.items())},
        "other_answers": traffic.attempts - traffic.count(201, 202, 429),
        "p99_201_ms": traffic.p99_ms(201),
    }


async def _traffic(
    processes: list[ApiProcess], token: str, queue: str, *, per_s: float, seconds: float
) -> Traffic:
    generator = Generator(
        [process.port for process in processes],
        lambda producer, number: _push(token, queue, producer, number, messages=BATCH),
        producers=int(per_s * PATIENCE_S * 2),
        patience_s=PATIENCE_S,
        max_connections=int(per_s * PATIENCE_S * 1.5),
    )
    return await generator.run(per_s=per_s, seconds=seconds)


async def _collapse(
    processes: list[ApiProcess], token: str, *, capacity: float, seconds: float
) -> dict[str, Any]:
    """The same load without admission: producers give up before they are answered."""
    traffic = await _traffic(processes, token, "wild", per_s=OVERLOAD * capacity, seconds=seconds)
    return {
        "goodput_ratio_without_admission": round(len(traffic.accepted) / traffic.seconds / capacity, 3),
        "without_admission": {
            **_described(traffic, capacity=capacity),
            "timed_out": traffic.statuses[TIMED_OUT],
        },
    }


@dataclass(slots=True)
class _Spent:
    """The pushes of some stretches, and the time that they took."""

    pushes: int = 0
    cpu_s: float = 0.0
    clock_s: float = 0.0

    async def add(self, process: ApiProcess, token: str) -> None:
        before = process.cpu_s() + redis_cpu_s()
        load = await _closed_loop(process, token, seconds=STRETCH_S, connections=8, messages=1)
        self.pushes += len(load.latencies_s)
        self.cpu_s += process.cpu_s() + redis_cpu_s() - before
        self.clock_s += load.seconds


async def _cost(folder: Path, token: str, *, blocks: int) -> dict[str, Any]:
    """The cost of admission without overload: one process answers with admission and without, in turns.

    The main figure is the processor time of the API and of Redis per push, which other work on the machine
    hardly changes. Wall-clock figures are returned too. Turns are short, because the machine's speed changes
    from second to second; ten of them are added up before they are compared.
    """
    costs, rates = [], []
    async with api_with_and_without(folder) as (guarded, bare):
        for block in range(blocks + 1):
            with_it, without = _Spent(), _Spent()
            turns = [(guarded, with_it), (bare, without)]
            for _ in range(10):
                for process, spent in turns:
                    await spent.add(process, token)
                turns.reverse()
            if block:
                costs.append((with_it.cpu_s / with_it.pushes) / (without.cpu_s / without.pushes) - 1)
                rates.append(1 - (with_it.pushes / with_it.clock_s) / (without.pushes / without.clock_s))
    return {
        "admission_cost": round(statistics.median(costs), 3),
        "admission_cost_quartiles": _quartiles(costs),
        "admission_cost_by_clock": round(statistics.median(rates), 3),
        "admission_cost_by_clock_quartiles": _quartiles(rates),
    }


def _quartiles(values: list[float]) -> list[float]:
    low, _, high = statistics.quantiles(values, n=4)
    return [round(low, 3), round(high, 3)]
