"""`weir bench load`: four times what two API processes can take, with admission and without.

Capacity is what a closed loop of connections gets through. Then arrivals come at four times that rate,
from producers with half a second of patience that honour Retry-After. Goodput counts messages that entered
their queue by the end of the stretch and whose producer was told so in time.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson
import uvloop

from weir.admission.kinds import OperationType
from weir.benches.http_load import Load, generate, request
from weir.benches.load_check import drained_after_s, estimates_within, verdict
from weir.benches.load_house import ApiProcess, api_processes, prepare
from weir.benches.load_traffic import TIMED_OUT, Generator, Traffic
from weir.broker.broker import Gated
from weir.broker.redis import RedisBroker
from weir.broker.runner import Connection
from weir.control.database import Database
from weir.embedded.migrations import migrate_stores
from weir.embedded.stack import Stack
from weir.embedded.urls import Urls
from weir.model.message import NewMessage
from weir.model.shards import shard_of
from weir.operations.model import NewOperation, lane_of
from weir.operations.payload import Push, encode_push
from weir.operations.queue import OperationQueue
from weir.operations.service import OperationService
from weir.serve.bootstrap import DEFAULT
from weir.settings import load_settings
from weir.spec.ir import QueueSpec

OVERLOAD = 4
PATIENCE_S = 0.5
KEYS = 2_000
CONNECTIONS = 64


def run(*, quick: bool, **_: Any) -> dict[str, Any]:
    """All figures; with `quick` within a minute."""
    return uvloop.run(_run(quick=quick))


async def _run(*, quick: bool) -> dict[str, Any]:
    seconds = 6.0 if quick else 60.0
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as name:
        folder = Path(name)
        async with Stack(folder) as stack:
            await migrate_stores(stack.urls)
            token = await prepare(stack.urls, folder)
            _say("how fast one processor drains")
            figures = await _drain(stack.urls, operations=4_000 if quick else 20_000)
            async with api_processes(folder, count=2, admission=False) as processes:
                _say("capacity of two processes")
                capacity = await _capacity(processes, token, rounds=3, seconds=1.5 if quick else 8.0)
                _say(f"{OVERLOAD} times {capacity:.0f} a second, without admission")
                figures |= await _collapse(processes, token, capacity=capacity, seconds=min(seconds, 20.0))
            async with api_processes(folder, count=2, admission=True) as processes:
                _say("the same with admission")
                figures |= await _overload(stack.urls, processes, token, capacity=capacity, seconds=seconds)
            _say("what admission costs")
            figures |= await _cost(folder, token, rounds=3 if quick else 10, seconds=1.0 if quick else 3.0)
    return {"capacity_per_s": round(capacity), **figures, "cpus": os.cpu_count(), "processes": 2}


def _say(text: str) -> None:
    print(f"load: {text}", file=sys.stderr, flush=True)


def _push(token: str, queue: str, producer: int, number: int) -> bytes:
    body = orjson.dumps(
        {"items": [{"queue": queue, "key": f"p{producer}", "payload": f"{producer}-{number}"}]}
    )
    return request("/api/v1/push", body, token=token)


async def _closed_loop(process: ApiProcess, token: str, *, seconds: float, connections: int) -> Load:
    numbers = itertools.count()
    return await generate(
        f"http://127.0.0.1:{process.port}",
        lambda: _push(token, "calm", next(numbers) % KEYS, 0),
        seconds=seconds,
        connections=connections,
    )


async def _capacity(processes: list[ApiProcess], token: str, *, rounds: int, seconds: float) -> float:
    """Pushes a second of both processes together, in a closed loop: the best round after a warm one."""
    rates = []
    for _ in range(rounds):
        loads = await asyncio.gather(
            *(_closed_loop(one, token, seconds=seconds, connections=CONNECTIONS // 2) for one in processes)
        )
        rates.append(sum(load.per_s for load in loads))
    return max(rates[1:])


async def _overload(
    urls: Urls, processes: list[ApiProcess], token: str, *, capacity: float, seconds: float
) -> dict[str, Any]:
    queue = DEFAULT.queue("load")
    broker = RedisBroker(Connection(url=urls.redis), shards=load_settings().shards)
    async with Database(urls.postgres, max_size=2) as database:
        watch = asyncio.create_task(_watch(processes))
        traffic = await _traffic(processes, token, "load", per_s=OVERLOAD * capacity, seconds=seconds)
        in_time = (await broker.state(queue)).odometers["enqueued"]
        drain_s = await drained_after_s(database)
        watch.cancel()
        memory = (await asyncio.gather(watch, return_exceptions=True))[0]
        found = await verdict(broker, queue, traffic.accepted)
        right = await estimates_within(database, traffic.estimates, factor=2.0)
    await broker.aclose()
    return {
        "goodput_ratio": round(in_time / traffic.seconds / capacity, 3),
        "goodput_per_s": round(in_time / traffic.seconds),
        "offered_ratio": OVERLOAD,
        "attempts": traffic.attempts,
        "answers": {str(status): count for status, count in sorted(traffic.statuses.items())},
        "other_errors": traffic.attempts - traffic.count(201, 202, 429),
        "accepted": len(traffic.accepted),
        "lost": found.lost,
        "duplicates": found.duplicates,
        "out_of_order": found.out_of_order,
        "p99_201_ms": round(traffic.p99_ms(201), 1),
        "p99_202_ms": round(traffic.p99_ms(202), 1),
        "p99_429_ms": round(traffic.p99_ms(429), 1),
        "drain_s": round(drain_s, 2),
        "estimates_within_factor_2": None if right is None else round(right, 3),
        "seconds": seconds,
        "memory_mib": memory if isinstance(memory, list) else [],
    }


async def _watch(processes: list[ApiProcess]) -> list[list[float]]:
    """The memory of each process over time."""
    seen: list[list[float]] = []
    try:
        while True:
            seen.append([round(process.rss_mib(), 1) for process in processes])
            await asyncio.sleep(5)
    except asyncio.CancelledError:
        return seen


async def _traffic(
    processes: list[ApiProcess], token: str, queue: str, *, per_s: float, seconds: float
) -> Traffic:
    generator = Generator(
        [process.port for process in processes],
        lambda producer, number: _push(token, queue, producer, number),
        producers=int(per_s / OVERLOAD * 6),
        patience_s=PATIENCE_S,
        max_connections=min(6_000, int(per_s / OVERLOAD * PATIENCE_S * 2)),
    )
    return await generator.run(per_s=per_s, seconds=seconds)


async def _collapse(
    processes: list[ApiProcess], token: str, *, capacity: float, seconds: float
) -> dict[str, Any]:
    """The same load with nobody at the door: producers give up before they are answered, and come again."""
    traffic = await _traffic(processes, token, "wild", per_s=OVERLOAD * capacity, seconds=seconds)
    answered = sum(1 for took in traffic.latencies_s.get(201, []) if took < PATIENCE_S)
    return {
        "goodput_ratio_without_admission": round(answered / traffic.seconds / capacity, 3),
        "without_admission": {
            "answered_in_time": answered,
            "timed_out": traffic.statuses[TIMED_OUT],
            "attempts": traffic.attempts,
            "p99_201_ms": round(traffic.p99_ms(201), 1),
        },
    }


async def _cost(folder: Path, token: str, *, rounds: int, seconds: float) -> dict[str, Any]:
    """What admission costs when nothing is wrong: one process with it and one without, in turns."""
    async with (
        api_processes(folder, count=1, admission=True) as (guarded,),
        api_processes(folder, count=1, admission=False) as (bare,),
    ):
        ratios = []
        for turn in range(rounds + 1):
            rates = {}
            for process in (guarded, bare) if turn % 2 else (bare, guarded):
                load = await _closed_loop(process, token, seconds=seconds, connections=8)
                rates[process.port] = load.per_s
            if turn:
                ratios.append(rates[guarded.port] / rates[bare.port])
    return {
        "admission_cost": round(1 - statistics.median(ratios), 3),
        "admission_cost_spread": [round(1 - max(ratios), 3), round(1 - min(ratios), 3)],
    }


async def _drain(urls: Urls, *, operations: int) -> dict[str, Any]:
    """How fast one processor drains a full operation queue."""
    shards = load_settings().shards
    broker = RedisBroker(Connection(url=urls.redis), shards=shards)
    queue = DEFAULT.queue("drain")
    loop = asyncio.get_running_loop()
    async with Database(urls.postgres, max_size=4) as database:
        store = OperationQueue(database)
        await broker.define(queue, QueueSpec(name=queue.queue))
        for at in range(0, operations, 500):
            batch = [_operation(n, shard=shard_of(queue.scope, shards=shards)) for n in range(at, at + 500)]
            await broker.close_gates(queue, [Gated(key=one.key, operation=one.id) for one in batch])
            await store.add(batch)
        service = OperationService(database=database, broker=broker)
        started = loop.time()
        while await store.depth():
            await service.processor.round()
        took = loop.time() - started
        delivered = (await broker.state(queue)).depth
    await broker.aclose()
    return {"drain_per_s": round(operations / took), "drained": delivered}


def _operation(number: int, *, shard: int) -> NewOperation:
    queue, key = DEFAULT.queue("drain"), f"p{number % 1_000}"
    message = NewMessage(payload=f"{number}".encode(), key=key)
    return NewOperation(
        queue=queue,
        key=key,
        type=OperationType.PUSH,
        lane=lane_of(queue, key),
        shard=shard,
        payload=encode_push(Push(messages=(message,))),
        messages=1,
    )
