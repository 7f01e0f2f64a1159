"""`weir bench dlq`: tens of millions of dead letters, on the embedded servers with their usual settings.

`/dlq-status`, the groups and the purge are measured through a real `weir serve`. Deaths and the redrive are
measured on the mover and the runner that it uses, called here. PostgreSQL has fsync on.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvloop

from benches.children import child
from benches.dlq_rows import CONSUMERS, GROUPS, PAYLOAD_BYTES, SQL, Sizes, fill
from benches.figures import percentile, say
from benches.servers import bench_stack
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database, fetch
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tokens import Tokens
from weir.deadletters.audit import DeadLetterAuditor
from weir.deadletters.bulk_action_runner import BulkActionRunner
from weir.deadletters.bulk_action_store import BulkActionStore
from weir.deadletters.bulk_actions import BulkActionKind, NewBulkAction
from weir.deadletters.filters import Filter
from weir.deadletters.mover import Mover
from weir.embedded.ports import free_port
from weir.errors import Misconfigured
from weir.model.message import Failure, NewMessage
from weir.model.names import QueueRef
from weir.model.shards import shard_of
from weir.serve.bootstrap import ADMIN, DEFAULT, keep_token
from weir.spec.ir import DeliveryPolicy, QueueSpec
from weir.stores.migrations import migrate_stores

ROWS = 23_000_000
QUICK_ROWS = 400_000
BYTES_PER_ROW = 900
"""Bytes on disk, with the indexes and some reserve."""
SPARE_BYTES = 2 << 30
"""Room for the servers' own files and their logs."""


def run(*, quick: bool, rows: int | None = None, **_: Any) -> dict[str, Any]:
    """All figures, with `rows` dead letters; 23 million by default."""
    rows = rows or (QUICK_ROWS if quick else ROWS)
    sizes = Sizes(rows=rows, purge=min(1_000_000, rows // 4), redrive=min(200_000, rows // 8))
    with tempfile.TemporaryDirectory(prefix="weir-bench-dlq-") as folder:
        # PostgreSQL may run as another account, which must be able to enter the folder.
        Path(folder).chmod(0o711)
        _check_room(folder, rows)
        work = _run(Path(folder), sizes, deaths=20_000 if quick else 100_000, rounds=3 if quick else 5)
        return uvloop.run(work)


def _check_room(folder: str, rows: int) -> None:
    """Fail now, and not after ten minutes, if the disk is too small."""
    free, needed = shutil.disk_usage(folder).free, rows * BYTES_PER_ROW + SPARE_BYTES
    if free < needed:
        raise Misconfigured(
            f"{rows:,} dead letters need {needed >> 30} GiB and `{folder}` has {free >> 30} GiB free; "
            "set TMPDIR to a larger disk, or measure fewer with --rows"
        )


async def _run(folder: Path, sizes: Sizes, *, deaths: int, rounds: int) -> dict[str, Any]:
    async with bench_stack(folder) as stack:
        await migrate_stores(stack.urls)
        broker = RedisBroker(RedisConnection(url=stack.urls.redis))
        async with Database(stack.urls.postgres, max_size=6, timeout_s=10) as database:
            token = await keep_token(Tokens(database), folder / "admin.token", ADMIN)
            took = await fill(database, DEFAULT, sizes)
            figures: dict[str, Any] = {"rows": sizes.rows, **took}
            figures |= await _deaths(broker, database, deaths=deaths, rounds=rounds)
            figures |= await _redrive(broker, database)
            figures |= await _audit(database)
            figures |= await _group_by(database, rounds=rounds)
            await broker.aclose()
            async with _api(str(folder), token) as client:
                figures |= await _reads(client, rounds=rounds)
                figures |= await _purge(client)
            figures |= await _audit(database, prefix="end_")
            figures |= await _size(database)
    figures["ratio"] = round(figures["group_by_ms"] / figures["status_p50_ms"])
    figures["ratio_vs_p99"] = round(figures["group_by_ms"] / figures["status_p99_ms"])
    return figures


async def _audit(database: Database, *, prefix: str = "") -> dict[str, Any]:
    """Recount the whole table, because all other figures rely on the counts."""
    began = time.monotonic()
    audit = await DeadLetterAuditor(database).audit(force=True)
    assert audit is not None
    return {f"{prefix}audit_s": round(time.monotonic() - began, 2), f"{prefix}drift": audit.drift}


async def _deaths(broker: RedisBroker, database: Database, *, deaths: int, rounds: int) -> dict[str, Any]:
    """Let messages die in Redis, then measure how fast the mover carries them to PostgreSQL."""
    queue = await _define(broker, database, "dying")
    mover, shard = Mover(broker, database), shard_of(DEFAULT, shards=broker.shards)
    speeds = []
    for _ in range(rounds):
        await _kill(broker, queue, deaths)
        began = time.monotonic()
        moved = 0
        while moved < deaths:
            moved += (await mover.move(shard)).stored
        speeds.append(deaths / (time.monotonic() - began))
        say(f"deaths: {speeds[-1]:,.0f}/s")
    return {
        "deaths_per_s": round(statistics.median(speeds)),
        "deaths_spread": [round(min(speeds)), round(max(speeds))],
        "deaths_batch": 1_000,
    }


async def _kill(broker: RedisBroker, queue: QueueRef, count: int) -> None:
    payload = b'{"filler": "' + b"x" * PAYLOAD_BYTES + b'"}'
    for start in range(0, count, 1_000):
        size = min(1_000, count - start)
        await broker.enqueue(queue, [NewMessage(payload=payload) for _ in range(size)])
        deliveries = await broker.dequeue(queue, consumer="bench", limit=size)
        await broker.nack(
            [
                Failure(
                    lease=one.lease, error=f"connect to 10.0.0.{number % 200}:80 refused, step {number % 7}"
                )
                for number, one in enumerate(deliveries)
            ]
        )


async def _redrive(broker: RedisBroker, database: Database) -> dict[str, Any]:
    """Send all dead letters of one consumer back to its queue, as fast as one runner can."""
    await _define(broker, database, "redrive-me")
    new = NewBulkAction(kind=BulkActionKind.REDRIVE, filter=Filter(queue="redrive-me"))
    task = await BulkActionStore(database, broker).create(DEFAULT, new, by="bench")
    runner = BulkActionRunner(broker, database)
    began = time.monotonic()
    done = task
    while not done.state.over:
        done = await runner.step(task.id) or done
    speed = done.done / (time.monotonic() - began)
    assert done.done == done.expected
    say(f"redrive: {speed:,.0f}/s")
    return {"redrive_per_s": round(speed), "redriven": done.done}


async def _define(broker: RedisBroker, database: Database, name: str) -> QueueRef:
    queue = DEFAULT.queue(name)
    spec = QueueSpec(name=name, delivery=DeliveryPolicy(max_attempts=1))
    await broker.define(queue, spec)
    await QueueDefinitions(database).define(queue, spec)
    return queue


async def _group_by(database: Database, *, rounds: int) -> dict[str, Any]:
    """Measure the `GROUP BY` over the whole table, which the summary replaces."""
    times = []
    async with database.connection() as connection:
        for _ in range(rounds):
            began = time.monotonic()
            await fetch(connection, SQL["job_status"])
            times.append((time.monotonic() - began) * 1000)
            say(f"GROUP BY: {times[-1]:,.0f} ms")
    return {"group_by_ms": round(statistics.median(times)), "group_by_best_ms": round(min(times))}


async def _reads(client: httpx2.AsyncClient, *, rounds: int) -> dict[str, Any]:
    """Measure reads, in turns with a route that asks no store and so shows how busy the machine is."""
    await _timed(client, "/dlq-status", 50)
    await _timed(client, "/api/v1/dlq/groups", 20)
    status: list[float] = []
    bare: list[float] = []
    for _ in range(rounds * 200):
        status += await _timed(client, "/dlq-status", 1)
        bare += await _timed(client, "/livez", 1)
    say(f"status: {percentile(status, 0.99):.2f} ms p99")
    groups = [ms for _ in range(rounds) for ms in await _timed(client, "/api/v1/dlq/groups", 40)]
    return {
        "status_p50_ms": round(percentile(status, 0.5), 2),
        "status_p99_ms": round(percentile(status, 0.99), 2),
        "bare_p50_ms": round(percentile(bare, 0.5), 2),
        "bare_p99_ms": round(percentile(bare, 0.99), 2),
        "groups_p50_ms": round(percentile(groups, 0.5), 2),
        "groups_p95_ms": round(percentile(groups, 0.95), 2),
        "consumers": CONSUMERS + 3,
        "groups": (CONSUMERS + 2) * GROUPS,
    }


async def _purge(client: httpx2.AsyncClient) -> dict[str, Any]:
    """Purge a consumer through the API, and poll the status twenty times per second at the same time."""
    began = time.monotonic()
    answer = await client.post("/api/v1/dlq/purges", json={"filter": {"queue": "purge-me"}})
    location = answer.headers["location"]
    times: list[float] = []
    task = answer.json()
    while task["state"] in ("pending", "running"):
        for _ in range(10):
            times += await _timed(client, "/dlq-status", 1)
            await asyncio.sleep(0.05)
        task = (await client.get(location)).json()
        say(f"purge: {task['done']:,} of {task['expected']:,}")
    seconds = time.monotonic() - began
    assert (task["state"], task["done"]) == ("completed", task["expected"]), task
    return {
        "purge_status_p50_ms": round(percentile(times, 0.5), 2),
        "purge_status_p99_ms": round(percentile(times, 0.99), 2),
        "purge_status_samples": len(times),
        "purged": task["done"],
        "purge_per_s": round(task["done"] / seconds),
    }


async def _timed(client: httpx2.AsyncClient, path: str, count: int) -> list[float]:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        answer = await client.get(path)
        times.append((time.perf_counter() - began) * 1000)
        answer.raise_for_status()
    return times


async def _size(database: Database) -> dict[str, Any]:
    row = await database.fetch_one(SQL["table_size"])
    assert row is not None
    return {"heap_mib": row["heap"] >> 20, "index_mib": row["indexes"] >> 20, "cpus": os.cpu_count()}


@asynccontextmanager
async def _api(folder: str, token: str) -> AsyncIterator[httpx2.AsyncClient]:
    port = free_port()
    serve = ("-m", "weir.cli", "serve", "--data-dir", folder, "--port", str(port))
    base_url, headers = f"http://127.0.0.1:{port}", {"authorization": f"Bearer {token}"}
    async with (
        child(*serve, folder=Path(folder), WEIR_API__LOG_LEVEL="ERROR"),
        httpx2.AsyncClient(base_url=base_url, headers=headers, timeout=30) as client,
    ):
        await _ready(client)
        yield client


async def _ready(client: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                if (await client.get("/livez")).status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            await asyncio.sleep(0.1)
