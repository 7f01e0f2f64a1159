"""`weir bench http`: one process of the API against a bare Starlette route on the same server set-up.

Rounds alternate between the two, so that a busy machine slows both. The API is the whole product:
tokens, limits, problems, metrics and Redis with its append-only file.
"""

from __future__ import annotations

import itertools
import os
import re
import statistics
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import uvloop

from benches.answering import answering
from benches.children import child
from benches.http_load import Load, generate, request
from benches.servers import bench_stack
from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tokens import Tokens
from weir.embedded.ports import free_port
from weir.serve.bootstrap import ADMIN, DEFAULT, keep_token
from weir.settings import StoreUrls
from weir.spec.ir import QueueSpec
from weir.stores.migrations import migrate_stores

QUEUE = "bench"
BATCH = 100
CONNECTIONS = 64
_SETTINGS = {
    "WEIR_API__LOG_LEVEL": "ERROR",
    # `weir bench load` measures admission; here every push is executed at once.
    "WEIR_LOAD__ADMISSION": "false",
}
_PAYLOAD = {"order": 4711, "customer": "customer-7", "amount": 12.5, "lines": ["a", "b", "c"]}
_LEASES = re.compile(rb'"id":"([0-9a-f-]{36})","queue":"bench","lease":"([0-9a-f-]+)"')


def run(*, quick: bool, **_: Any) -> dict[str, Any]:
    """All figures; with `quick` within a minute."""
    return uvloop.run(_run(rounds=3 if quick else 5, seconds=2.0 if quick else 4.0))


async def _run(*, rounds: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as name:
        folder = Path(name)
        async with bench_stack(folder) as stack:
            await migrate_stores(stack.urls)
            token = await _prepare(stack.urls, folder)
            async with _limit(folder) as limit_url, _api(folder) as api_url:
                return await _measure(limit_url, api_url, token=token, rounds=rounds, seconds=seconds)


async def _prepare(urls: StoreUrls, folder: Path) -> str:
    async with Database(urls.postgres, max_size=2) as database:
        await QueueDefinitions(database).define(DEFAULT.queue(QUEUE), QueueSpec(name=QUEUE))
        return await keep_token(Tokens(database), folder / "admin.token", ADMIN)


async def _measure(
    limit_url: str, api_url: str, *, token: str, rounds: int, seconds: float
) -> dict[str, Any]:
    single = request("/api/v1/push", _push_body(1), token=token)
    bare = request("/push", _push_body(1), token=token)
    batch = request("/api/v1/push", _push_body(BATCH), token=token)
    await _warm(limit_url, bare, api_url, single)
    limits: list[Load] = []
    pushes: list[Load] = []
    batches: list[Load] = []
    pops: list[Load] = []
    acks: list[Load] = []
    for _ in range(rounds):
        limits.append(await _load(limit_url, bare, seconds))
        pushes.append(await _load(api_url, single, seconds))
        batches.append(await _load(api_url, batch, seconds, connections=8))
        pop, ack = await _drain(api_url, token=token, seconds=seconds)
        pops.append(pop)
        acks.append(ack)
    _refuse_failures(limits, pushes, batches, pops, acks)
    ratios = [push.per_s / limit.per_s for push, limit in zip(pushes, limits, strict=True)]
    return {
        "limit_per_s": _median([load.per_s for load in limits]),
        "push_per_s": _median([load.per_s for load in pushes]),
        "push_ratio": round(statistics.median(ratios), 3),
        "push_ratio_spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "push_p50_ms": _median([load.percentile_ms(0.5) for load in pushes], 2),
        "push_p99_ms": _median([load.percentile_ms(0.99) for load in pushes], 2),
        "push_batch_messages_per_s": _median([load.per_s * BATCH for load in batches]),
        "push_batch_spread": _spread([load.per_s * BATCH for load in batches]),
        "push_batch_p99_ms": _median([load.percentile_ms(0.99) for load in batches], 2),
        "pop_batch_messages_per_s": _median([load.per_s * BATCH for load in pops]),
        "ack_batch_messages_per_s": _median([load.per_s * BATCH for load in acks]),
        "batch": BATCH,
        "connections": CONNECTIONS,
        "rounds": rounds,
        "seconds_a_round": seconds,
        "payload_bytes": len(orjson.dumps(_PAYLOAD)),
        "durability": "fast",
        "processes": 1,
        "cpus": os.cpu_count(),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRates:
    """Messages per second in batches over several connections: the most that one process of the API does."""

    push_per_s: float
    pop_per_s: float
    ack_per_s: float

    @property
    def pop_and_ack_per_s(self) -> float:
        """Messages per second that are popped and then acked."""
        return 1 / (1 / self.pop_per_s + 1 / self.ack_per_s)


async def batch_rates(api_url: str, *, token: str, seconds: float) -> BatchRates:
    """Measure the batch rates of one round, for benches that compare with them."""
    batch = request("/api/v1/push", _push_body(BATCH), token=token)
    push = await _load(api_url, batch, seconds, connections=8)
    pop, ack = await _drain(api_url, token=token, seconds=seconds)
    _refuse_failures([push], [pop], [ack])
    return BatchRates(push_per_s=push.per_s * BATCH, pop_per_s=pop.per_s * BATCH, ack_per_s=ack.per_s * BATCH)


async def _drain(api_url: str, *, token: str, seconds: float) -> tuple[Load, Load]:
    """Pop for a while, then ack the popped messages."""
    body = orjson.dumps({"queue": QUEUE, "limit": BATCH, "lease_ms": 600_000})
    bodies: list[bytes] = []
    pop = await generate(
        api_url,
        itertools.repeat(request("/api/v1/pop", body, token=token)).__next__,
        seconds=seconds,
        connections=8,
        read=bodies.append,
    )
    leases = [found for found in map(_LEASES.findall, bodies) if found]
    pop.latencies_s = pop.latencies_s[: len(leases)]
    acks = iter([request("/api/v1/ack/batch", _ack_body(found), token=token) for found in leases])
    ack = await generate(api_url, lambda: next(acks, None), seconds=60, connections=8)
    return pop, ack


def _ack_body(found: list[tuple[bytes, bytes]]) -> bytes:
    leases = [{"queue": QUEUE, "id": one.decode(), "lease": lease.decode()} for one, lease in found]
    return orjson.dumps({"acknowledgments": leases})


def _push_body(count: int) -> bytes:
    return orjson.dumps({"items": [{"queue": QUEUE, "payload": _PAYLOAD} for _ in range(count)]})


async def _load(url: str, body: bytes, seconds: float, *, connections: int = CONNECTIONS) -> Load:
    return await generate(url, itertools.repeat(body).__next__, seconds=seconds, connections=connections)


async def _warm(limit_url: str, bare: bytes, api_url: str, single: bytes) -> None:
    await _load(limit_url, bare, 0.5)
    await _load(api_url, single, 0.5)


def _refuse_failures(*groups: list[Load]) -> None:
    failures = [load.failures for group in groups for load in group if load.failures]
    if failures:
        raise RuntimeError(f"the bench met answers other than 2xx: {failures}")


def _median(values: list[float], digits: int = 0) -> float:
    return round(statistics.median(values), digits or None)


def _spread(values: list[float]) -> list[int]:
    return [round(min(values)), round(max(values))]


@asynccontextmanager
async def _limit(folder: Path) -> AsyncIterator[str]:
    port = free_port()
    async with child("-m", "benches.http_limit", str(port), folder=folder):
        yield await answering(port)


@asynccontextmanager
async def _api(folder: Path) -> AsyncIterator[str]:
    port = free_port()
    serve = ("-m", "weir.cli", "serve", "--data-dir", str(folder), "--port", str(port))
    async with child(*serve, folder=folder, **_SETTINGS):
        yield await answering(port)
