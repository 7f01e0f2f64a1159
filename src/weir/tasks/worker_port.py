"""The port of a worker: `/metrics` for Prometheus, `/livez` and `/readyz` for probes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from weir.errors import Misconfigured

_HEAD_S = 5.0
_MAX_HEAD = 8 << 10
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class TaskCounts:
    """Counts attempts by task and ending, and how long they took."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._attempts = Counter(
            "weir_task_attempts", "Attempts at tasks.", ("task", "ending"), registry=self.registry
        )
        self._seconds = Histogram(
            "weir_task_seconds", "How long attempts at tasks took.", ("task",), registry=self.registry
        )

        # Looking a child up by its labels takes longer than counting.
        self._children: dict[tuple[str, str], tuple[Counter, Histogram]] = {}

    def note(self, task: str, ending: str, seconds: float) -> None:
        found = self._children.get((task, ending))
        if found is None:
            found = self._attempts.labels(task, ending), self._seconds.labels(task)
            self._children[task, ending] = found
        found[0].inc()
        found[1].observe(seconds)


@asynccontextmanager
async def worker_port(
    port: int | None, counts: TaskCounts, *, is_ready: Callable[[], bool], host: str = "0.0.0.0"
) -> AsyncIterator[int | None]:
    """Answer on a port while the block runs; without a port, do nothing."""
    if port is None:
        yield None
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(_path(head), counts, ready=is_ready()))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=_MAX_HEAD)
    except OSError as error:
        raise Misconfigured(f"port {port} cannot be opened ({error.strerror}); choose another") from None
    async with server:
        yield server.sockets[0].getsockname()[1]


def _path(head: bytes) -> str:
    parts = head.split(b"\r\n", 1)[0].split(b" ")
    return parts[1].decode("latin-1").partition("?")[0] if len(parts) == 3 and parts[0] == b"GET" else ""


def _response(path: str, counts: TaskCounts, *, ready: bool) -> bytes:
    match path:
        case "/metrics":
            return _written(200, generate_latest(counts.registry), _METRICS)
        case "/livez":
            return _written(200, b"ok\n")
        case "/readyz":
            return _written(200, b"ready\n") if ready else _written(503, b"not ready\n")
    return _written(404, b"there is /metrics, /livez and /readyz\n")


_REASONS = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}


def _written(status: int, body: bytes, kind: str = "text/plain") -> bytes:
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body
