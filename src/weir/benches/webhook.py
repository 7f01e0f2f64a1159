"""`weir bench webhook`: signed webhooks into a queue, against a bare route with the same signature check.

Rounds alternate between the two. Then a burst, a twentieth of which is sent twice: every 202 must be
processed exactly once for its key. The API and the worker are whole processes of the product.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import uvloop

from weir.benches.http_load import Load, generate
from weir.broker.redis import RedisBroker
from weir.broker.runner import Connection
from weir.control.database import Database
from weir.embedded.migrations import migrate_stores
from weir.embedded.ports import free_port
from weir.embedded.stack import Stack
from weir.model.ids import MessageId, new_id
from weir.serve.bootstrap import DEFAULT
from weir.serve.hooks import open_specs
from weir.spec.language import read_spec

SECRET = "a secret for the bench alone"
CONNECTIONS = 64
BURST_CONNECTIONS = 256
REPEAT_EVERY = 20
SPEC = """
app Bench {
  queue Accepted {}
  queue Burst { message_type { payload: json }  map_to: command Bench.Take { number: payload.number } }
  webhook bench { queue: Accepted  verify github { secret_env: "BENCH_HOOK_SECRET" } }
  webhook burst { queue: Burst  verify github { secret_env: "BENCH_HOOK_SECRET" } }
}
"""
_FILLER = {"title": "Disk full", "urgency": "high", "service": "search", "details": "x" * 800}


@dataclass(frozen=True, slots=True)
class House:
    """The servers of a bench."""

    limit_url: str
    api_url: str
    broker: RedisBroker
    folder: str


def run(*, quick: bool, **_: Any) -> dict[str, Any]:
    """All figures; with `quick` within a minute."""
    if quick:
        return uvloop.run(_run(rounds=3, seconds=2.0, burst=3_000, probes=150))
    return uvloop.run(_run(rounds=5, seconds=4.0, burst=10_000, probes=500))


async def _run(*, rounds: int, seconds: float, burst: int, probes: int) -> dict[str, Any]:
    async with _house() as house:
        limits, hooks = await _alternate(house, rounds=rounds, seconds=seconds)
        visible = await _visibility(house, probes)
        figures = await _burst(house, burst)
    ratios = [hook.per_s / limit.per_s for hook, limit in zip(hooks, limits, strict=True)]
    return {
        "limit_per_s": round(statistics.median(load.per_s for load in limits)),
        "accept_per_s": round(statistics.median(load.per_s for load in hooks)),
        "refused": sum(sum(load.failures.values()) for load in hooks),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "accept_p50_ms": round(statistics.median(load.percentile_ms(0.5) for load in hooks), 2),
        "accept_p99_ms": round(statistics.median(load.percentile_ms(0.99) for load in hooks), 2),
        "visible_p50_ms": round(_percentile(visible, 0.5), 2),
        "visible_p99_ms": round(_percentile(visible, 0.99), 2),
        **figures,
        "connections": CONNECTIONS,
        "burst_connections": BURST_CONNECTIONS,
        "rounds": rounds,
        "seconds_a_round": seconds,
        "body_bytes": len(_body(0)),
        "durability": "fast",
        "cpus": os.cpu_count(),
    }


async def _alternate(house: House, *, rounds: int, seconds: float) -> tuple[list[Load], list[Load]]:
    limits: list[Load] = []
    hooks: list[Load] = []
    for url in (house.limit_url, house.api_url):
        await generate(url, _maker("bench"), seconds=0.5, connections=CONNECTIONS)
    for _ in range(rounds):
        limits.append(
            await generate(house.limit_url, _maker("bench"), seconds=seconds, connections=CONNECTIONS)
        )
        hooks.append(await generate(house.api_url, _maker("bench"), seconds=seconds, connections=CONNECTIONS))
    return limits, hooks


async def _visibility(house: House, probes: int) -> list[float]:
    """From the 202 in the sender's hands until a consumer can see the message."""
    waits: list[float] = []
    queue = DEFAULT.queue("Accepted")
    for number in range(probes):
        message_id = await _sent_once(house.api_url, number)
        answered = time.perf_counter()
        seen = False
        while not seen:
            (seen,) = await house.broker.holds(queue, [message_id])
        waits.append((time.perf_counter() - answered) * 1000)
    return waits


async def _sent_once(url: str, number: int) -> MessageId:
    answers: list[bytes] = []
    waiting = iter([_request("bench", _body(number), new_id())])
    await generate(url, lambda: next(waiting, None), seconds=10, connections=1, read=answers.append)
    return MessageId(orjson.loads(answers[0])["id"])


async def _burst(house: House, count: int) -> dict[str, Any]:
    """Everything at once, some of it twice, while a worker drains."""
    requests = _burst_requests(count)
    sent = len(requests)
    answers: list[bytes] = []
    waiting = iter(requests)
    async with _child(house.folder, "worker", "--app", "weir.benches.webhook_app:app", "--concurrency", "50"):
        # One ahead of the others: the burst begins when the worker works, not while it starts.
        ahead = iter([_request("burst", _body(0), new_id())])
        await generate(house.api_url, lambda: next(ahead, None), seconds=10, connections=1)
        await _processed(house.broker, 1)
        started = time.perf_counter()
        load = await generate(
            house.api_url,
            lambda: next(waiting, None),
            seconds=300,
            connections=BURST_CONNECTIONS,
            read=answers.append,
        )
        accepted = {orjson.loads(answer)["id"] for answer in answers}
        processed = await _processed(house.broker, len(accepted) + 1) - 1
        drained_s = time.perf_counter() - started
    state = await house.broker.state(DEFAULT.queue("Burst"))
    enqueued = state.odometers["enqueued"] - 1
    return {
        "sent": sent,
        "answered_202": len(answers),
        "accepted": len(accepted),
        "processed": processed,
        "lost": len(accepted) - processed,
        "duplicates": enqueued - len(accepted),
        "other_answers": {str(status): number for status, number in load.failures.items()},
        "p50_ms": round(load.percentile_ms(0.5), 2),
        "p99_ms": round(load.percentile_ms(0.99), 2),
        "burst_per_s": round(load.per_s),
        "drained_s": round(drained_s, 2),
    }


async def _processed(broker: RedisBroker, wanted: int) -> int:
    """How many messages were acknowledged, once all are or nothing moves any more."""
    done, moved_at = -1, time.perf_counter()
    while time.perf_counter() - moved_at < 20:
        state = await broker.state(DEFAULT.queue("Burst"))
        now = state.odometers["acked"]
        if now >= wanted and state.depth == state.running == 0:
            return now
        if now != done:
            done, moved_at = now, time.perf_counter()
        await asyncio.sleep(0.05)
    return done


def _burst_requests(count: int) -> list[bytes]:
    requests: list[bytes] = []
    for number in range(count):
        request = _request("burst", _body(number), new_id())
        requests.append(request)
        if number % REPEAT_EVERY == 0:
            requests.append(request)
    return requests


def _body(number: int) -> bytes:
    return orjson.dumps({"number": number, **_FILLER})


def _request(hook: str, body: bytes, delivery: str) -> bytes:
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    head = (
        f"POST /hook/{hook} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"user-agent: GitHub-Hookshot/1\r\nx-github-event: push\r\nx-github-delivery: {delivery}\r\n"
        f"x-hub-signature-256: sha256={signature}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _maker(hook: str) -> Callable[[], bytes]:
    """One body and signature, a new delivery id each time: the generator must not be what is measured."""
    body = _body(1)
    head, _, rest = _request(hook, body, "DELIVERY").partition(b"DELIVERY")
    prefix = new_id()

    def numbers() -> Iterator[int]:
        number = 0
        while True:
            number += 1
            yield number

    counter = numbers()
    return lambda: b"%s%s-%d%s" % (head, prefix.encode(), next(counter), rest)


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


@asynccontextmanager
async def _house() -> AsyncIterator[House]:
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        async with Stack(Path(folder)) as stack:
            await migrate_stores(stack.urls)
            broker = RedisBroker(Connection(url=stack.urls.redis))
            try:
                async with Database(stack.urls.postgres, max_size=2) as database:
                    await open_specs(database, broker).apply(
                        DEFAULT, read_spec(SPEC), source=SPEC, file="bench.weir", actor="bench"
                    )
                limit, api = free_port(), free_port()
                async with (
                    _process("-m", "weir.benches.webhook_limit", str(limit), SECRET),
                    _child(folder, "serve", "--port", str(api)),
                ):
                    yield House(await _answering(limit), await _answering(api), broker, folder)
            finally:
                await broker.aclose()


@asynccontextmanager
async def _child(folder: str, command: str, *arguments: str) -> AsyncIterator[None]:
    async with _process("-m", "weir.cli", command, "--data-dir", folder, *arguments):
        yield


@asynccontextmanager
async def _process(*arguments: str) -> AsyncIterator[None]:
    environment = {**os.environ, "WEIR_API__LOG_LEVEL": "ERROR", "BENCH_HOOK_SECRET": SECRET}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def _answering(port: int) -> str:
    """The URL of a server, once it accepts connections."""
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return f"http://127.0.0.1:{port}"
