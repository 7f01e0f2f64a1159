"""Measures calls of the client in a process of its own; prints one JSON object.

    python -m benches.client_calls CALL URL COUNT

The token is in the environment. Loops are plain asyncio, as users have them.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from benches.client_tasks import bench_app
from benches.peers.yardstick import most_memory_mib
from weir import AsyncWeir, OutgoingMessage, PushResult, Weir

TOKEN = "BENCH_TOKEN"
"""The environment variable with the token."""
REDIS = "BENCH_REDIS"
"""The environment variable with the URL of Redis, for direct mode."""
QUEUE, NOOP, PACED = "Calls", "Noop", "Paced"
PAYLOAD = {"order": 4711, "customer": "customer-7", "amount": 12.5, "lines": ["a", "b", "c"]}
CONCURRENT = 64
TURNS = 20
"""How often the client and the bare loop take turns."""
POP = 500
LISTS = 5
"""Number of lists by which a direct bulk push is measured."""
CALLERS = 4
"""Asyncio tasks of one client that push lists, or that pop and ack. `weir bench http` has 8 connections."""
PACE_PER_S = 200

Figures = dict[str, Any]


def single(url: str, count: int) -> Figures:
    """One push at a time from one thread, in turns with a bare `http.client` loop with the same bodies."""
    each = max(1, count // TURNS)
    times, ratios, rates = [], [], []
    with Weir(url, token=_token()) as weir:
        weir.push(QUEUE, PAYLOAD)
        for _ in range(TURNS):
            raw_s = _time_raw(url, each)
            found = _time_pushes(weir, each)
            times += found
            rates.append(each / sum(found))
            ratios.append(sum(found) / raw_s)
    return {
        "push_single_per_s": median(rates),
        "push_single_p50_ms": median(times) * 1_000,
        "ratio_single_vs_raw": median(ratios),
    }


def _time_pushes(weir: Weir, count: int) -> list[float]:
    times = []
    for _ in range(count):
        before = time.perf_counter()
        weir.push(QUEUE, PAYLOAD)
        times.append(time.perf_counter() - before)
    return times


def _time_raw(url: str, count: int) -> float:
    """Seconds for `count` requests on an open connection, with bodies that were encoded before."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    headers = {"content-type": "application/json", "authorization": f"Bearer {_token()}"}
    bodies = [_body() for _ in range(count + 1)]
    _post(connection, bodies.pop(), headers)
    started = time.perf_counter()
    for body in bodies:
        _post(connection, body, headers)
    took_s = time.perf_counter() - started
    connection.close()
    return took_s


def _body() -> bytes:
    message = OutgoingMessage(queue=QUEUE, payload=PAYLOAD)
    return json.dumps({"items": [message.document()]}, separators=(",", ":")).encode()


def _post(connection: http.client.HTTPConnection, body: bytes, headers: dict[str, str]) -> None:
    connection.request("POST", "/api/v1/push", body=body, headers=headers)
    answer = connection.getresponse()
    answer.read()
    if answer.status != 201:
        raise RuntimeError(f"the bare loop met the status {answer.status}")


def concurrent(url: str, count: int) -> Figures:
    """Many asyncio tasks that each push one message at a time through one client."""

    async def push_all() -> float:
        async with AsyncWeir(url, token=_token()) as weir:

            async def push_some(some: int) -> None:
                for _ in range(some):
                    _check(await weir.push(QUEUE, PAYLOAD))

            await push_some(5)
            started = time.perf_counter()
            await asyncio.gather(*(push_some(count // CONCURRENT) for _ in range(CONCURRENT)))
            return count // CONCURRENT * CONCURRENT / (time.perf_counter() - started)

    return {"push_concurrent_per_s": asyncio.run(push_all())}


def many(url: str, count: int) -> Figures:
    """Long lists of messages from a few asyncio tasks of one client, and from one thread.

    The time includes making the messages.
    """
    size = count // 2 // CALLERS

    async def push_lists() -> float:
        async with AsyncWeir(url, token=_token()) as weir:

            async def push_list() -> None:
                _check(*await weir.push_many(_messages(size)))

            await weir.push(QUEUE, PAYLOAD)
            started = time.perf_counter()
            await asyncio.gather(*(push_list() for _ in range(CALLERS)))
            return size * CALLERS / (time.perf_counter() - started)

    return {"push_many_per_s": asyncio.run(push_lists()), **_many_from_one_thread(url, count // 2)}


def _many_from_one_thread(url: str, count: int) -> Figures:
    with Weir(url, token=_token()) as weir:
        weir.push(QUEUE, PAYLOAD)
        started = time.perf_counter()
        _check(*weir.push_many(_messages(count)))
        return {"push_many_one_thread_per_s": count / (time.perf_counter() - started)}


def _messages(count: int) -> list[OutgoingMessage]:
    return [OutgoingMessage(queue=QUEUE, payload=PAYLOAD) for _ in range(count)]


def direct_single(url: str, count: int) -> Figures:
    """One push at a time from one thread in direct mode."""
    with Weir([os.environ[REDIS], url], token=_token()) as weir:
        _time_pushes(weir, 100)
        rates = [(each := max(1, count // TURNS)) / sum(_time_pushes(weir, each)) for _ in range(TURNS)]
        return {"direct_single_per_s": median(rates)}


def direct_many(url: str, count: int) -> Figures:
    """Long lists of messages from one thread in direct mode; the time includes making them."""
    rates = []
    with Weir([os.environ[REDIS], url], token=_token()) as weir:
        weir.push(QUEUE, PAYLOAD)
        for _ in range(LISTS):
            started = time.perf_counter()
            _check(*weir.push_many(_messages(count // LISTS)))
            rates.append(count // LISTS / (time.perf_counter() - started))
    return {"direct_bulk_per_s": median(rates)}


def direct_consume(url: str, count: int) -> Figures:
    """One thread that pops batches in direct mode, reads every payload and acks every message."""
    left = count
    with Weir([os.environ[REDIS], url], token=_token()) as weir:
        started = time.perf_counter()
        while left > 0 and (messages := weir.pop(QUEUE, limit=POP, lease=600)):
            left -= len(messages)
            if any(message.json["order"] != PAYLOAD["order"] for message in messages):
                raise RuntimeError("the bench popped other messages than it pushed")
            if set(weir.ack_many(messages)) != {"acked"}:
                raise RuntimeError("the bench could not ack what it popped")
        took_s = time.perf_counter() - started
    if left > 0:
        raise RuntimeError(f"the bench popped {left} messages less than it pushed")
    return {"direct_consume_per_s": (count - left) / took_s}


def consume(url: str, count: int) -> Figures:
    """A few loops of one client that pop batches, read every payload and ack every message."""
    left = count

    async def consume_all() -> float:
        async with AsyncWeir(url, token=_token()) as weir:
            started = time.perf_counter()
            await asyncio.gather(*(consume_some(weir) for _ in range(CALLERS)))
            took_s = time.perf_counter() - started
        if left > 0:
            raise RuntimeError(f"the bench popped {left} messages less than it pushed")
        return (count - left) / took_s

    async def consume_some(weir: AsyncWeir) -> None:
        nonlocal left
        while left > 0 and (messages := await weir.pop(QUEUE, limit=POP, lease=600)):
            left -= len(messages)
            if any(message.json["order"] != PAYLOAD["order"] for message in messages):
                raise RuntimeError("the bench popped other messages than it pushed")
            if set(await weir.ack_many(messages)) != {"acked"}:
                raise RuntimeError("the bench could not ack what it popped")

    return {"consume_per_s": asyncio.run(consume_all())}


def fill(url: str, count: int) -> Figures:
    """Push messages for the worker's no-op command."""
    with Weir(url, token=_token()) as weir:
        messages = [OutgoingMessage(queue=NOOP, payload={"last": count}) for _ in range(count)]
        _check(*weir.push_many(messages))
    return {}


def tasks(_: str, count: int) -> Figures:
    """Push calls of a task through an app in direct mode: half of them in many loops, half in a list."""
    half = count // 2
    return {
        "tasks_push_concurrent_per_s": asyncio.run(_push_in_loops(half, last=count)),
        "tasks_push_many_per_s": _push_list("noop", count - half, last=count),
    }


def sync_tasks(_: str, count: int) -> Figures:
    """Push calls of the worker's synchronous task."""
    _push_list("sync_noop", count, last=count)
    return {}


async def _push_in_loops(count: int, *, last: int) -> float:
    app = bench_app(os.environ[REDIS])
    task, left = app.tasks["noop"], count - 1

    async def push_some() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await task.apush(last=last)

    # The first push asks the API for the address and the queues, so it is not measured.
    await task.apush(last=last)
    started = time.perf_counter()
    await asyncio.gather(*(push_some() for _ in range(CONCURRENT)))
    took_s = time.perf_counter() - started
    await app.aclose()
    return (count - 1) / took_s


def _push_list(name: str, count: int, *, last: int) -> float:
    app = bench_app(os.environ[REDIS])
    task = app.tasks[name]
    task.push(last=last)
    started = time.perf_counter()
    app.push_many([task.call(last=last) for _ in range(count - 1)])
    took_s = time.perf_counter() - started
    app.close()
    return (count - 1) / took_s


def pace(url: str, count: int) -> Figures:
    """One push at a time at a steady pace; each message says when its push began."""
    with Weir(url, token=_token()) as weir:
        begun = time.perf_counter()
        for number in range(count):
            time.sleep(max(0.0, begun + number / PACE_PER_S - time.perf_counter()))
            _check(weir.push(PACED, {"last": count, "sent_ns": time.monotonic_ns()}))
    return {}


def _check(*results: PushResult) -> None:
    other = {result.status for result in results} - {"accepted"}
    if other:
        raise RuntimeError(f"the bench met pushes that are {', '.join(other)}")


def _token() -> str:
    return os.environ[TOKEN]


CALLS: dict[str, Callable[[str, int], Figures]] = {
    call.__name__: call
    for call in (
        single, concurrent, many, consume, fill, pace, direct_single, direct_many, direct_consume, tasks,
        sync_tasks,
    )
}  # fmt: skip


def main(name: str, url: str, count: str) -> None:
    found = CALLS[name](url, int(count))
    print(json.dumps({**found, "memory_mib": most_memory_mib()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
