"""The servers of the webhook bench, which are real `weir` processes, and the requests to them."""

from __future__ import annotations

import hashlib
import hmac
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from benches.answering import answering
from benches.children import child
from benches.servers import bench_stack
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.control.sealing import read_keys
from weir.control.secrets import Secrets
from weir.control.spec_plans import SpecText
from weir.embedded.child import Child
from weir.embedded.datadir import SEALING_KEYS
from weir.embedded.ports import free_port
from weir.serve.bootstrap import DEFAULT
from weir.serve.hooks import open_specs
from weir.settings import WorkerSettings
from weir.stores.migrations import migrate_stores

SECRET = "a secret for the bench alone"
SPEC = """
app Bench {
  queue Accepted {}
  queue Burst { message_type { payload: json }  map_to: command Bench.Take { number: payload.number } }
  webhook bench { queue: Accepted  verify github { secret: "BENCH_HOOK_SECRET" } }
  webhook burst { queue: Burst  verify github { secret: "BENCH_HOOK_SECRET" } }
}
"""
_FILLER = {"title": "Disk full", "urgency": "high", "service": "search", "details": "x" * 800}


@dataclass(frozen=True, slots=True)
class House:
    """The servers of a bench."""

    limit_url: str
    api_url: str
    broker: RedisBroker
    folder: Path


def body_of(number: int) -> bytes:
    return orjson.dumps({"number": number, **_FILLER})


def request_of(hook: str, body: bytes, delivery: str) -> bytes:
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    head = (
        f"POST /hook/{hook} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"user-agent: GitHub-Hookshot/1\r\nx-github-event: push\r\nx-github-delivery: {delivery}\r\n"
        f"x-hub-signature-256: sha256={signature}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@asynccontextmanager
async def open_house() -> AsyncIterator[House]:
    """Start the servers, with the bench's spec applied."""
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as name:
        folder = Path(name)
        async with bench_stack(folder) as stack:
            await migrate_stores(stack.urls)
            broker = RedisBroker(RedisConnection(url=stack.urls.redis))
            try:
                async with Database(stack.urls.postgres, max_size=2) as database:
                    keys = read_keys(folder / SEALING_KEYS)
                    await Secrets(database, keys).put(DEFAULT, "BENCH_HOOK_SECRET", SECRET, actor="bench")
                    await open_specs(database, broker, WorkerSettings()).apply(
                        DEFAULT, SpecText(source=SPEC, file="bench.weir"), actor="bench"
                    )
                limit = free_port()
                api = free_port(other_than={limit})
                async with (
                    child("-m", "benches.webhook_limit", str(limit), SECRET, folder=folder),
                    command(folder, "serve", "--port", str(api)),
                ):
                    yield House(await answering(limit), await answering(api), broker, folder)
            finally:
                await broker.aclose()


def command(folder: Path, name: str, *arguments: str) -> AbstractAsyncContextManager[Child]:
    """Run a command of Weir in its own process while the block runs."""
    whole = ("-m", "weir.cli", name, "--data-dir", str(folder), *arguments)
    return child(*whole, folder=folder, WEIR_API__LOG_LEVEL="ERROR")
