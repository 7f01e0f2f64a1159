"""Clients that mean no good, and one that does: what they send, and what they were told.

Crowds run in processes of their own, so that their work does not slow down the client that is measured.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, TypeVar

import orjson
import psutil

from support.api_process import ApiProcess

QUEUE = "orders"
T = TypeVar("T")


def request(method: str, path: str, *, token: str | None, body: bytes) -> bytes:
    return head(method, path, token=token, length=len(body)) + body


def head(method: str, path: str, *, token: str | None, length: int | None) -> bytes:
    """Request line and headers; without a length the body is chunked."""
    credential = "" if token is None else f"authorization: Bearer {token}\r\n"
    size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    common = "host: weir\r\ncontent-type: application/json\r\n"
    return f"{method} {path} HTTP/1.1\r\n{common}{credential}{size}\r\n\r\n".encode()


def push_body(*queues: str) -> bytes:
    return orjson.dumps({"items": [{"queue": queue, "payload": {"order": 1}} for queue in queues]})


@dataclass(kw_only=True)
class Told:
    """The statuses of the answers, and how long each took."""

    statuses: Counter[int] = field(default_factory=Counter)
    took_s: list[float] = field(default_factory=list)
    details: Counter[str] = field(default_factory=Counter)
    """What those were told that were refused."""

    @property
    def total(self) -> int:
        return self.statuses.total()

    def share(self, status: int) -> float:
        return self.statuses[status] / max(1, self.total)

    def __str__(self) -> str:
        if not self.took_s:
            return "no answers"
        times = sorted(self.took_s)
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
        median = statistics.median(times)
        return f"{dict(self.statuses)}, p50 {median * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms"


async def push_steadily(
    port: int, token: str, until_s: float, *, every_s: float = 0.0, body: bytes | None = None
) -> Told:
    """A client that pushes one request after the other, headers and body in separate writes."""
    told, body = Told(), body or push_body(QUEUE)
    start = head("POST", "/api/v1/push", token=token, length=len(body))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until_s:
        began = time.monotonic()
        writer.write(start)
        await writer.drain()
        writer.write(body)
        status, closing, document = await _answer(reader)
        if status != 201:
            told.details[document.get("detail") or document["items"][0].get("reason")] += 1
        told.statuses[status] += 1
        told.took_s.append(time.monotonic() - began)
        if closing:
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(max(0.0, every_s - (time.monotonic() - began)))
    writer.close()
    return told


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bool, Any]:
    async with asyncio.timeout(60):
        text = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in text.split(b"\r\n") if line.startswith(b"content-length: "))
        document = orjson.loads(await reader.readexactly(int(length[16:])))
    return int(text[9:12]), b"connection: close" in text, document


@dataclass(kw_only=True)
class Attack:
    """Connections that are opened again as soon as they end, and what became of them."""

    opened: int = 0
    sent_bytes: int = 0
    longest_s: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)

    def __str__(self) -> str:
        sent = self.sent_bytes / 1_048_576
        told = dict(self.statuses)
        return f"{self.opened} connections, {sent:.0f} MiB sent, longest {self.longest_s:.1f} s, told {told}"


async def crowd(run: Callable[..., T], *args: Any) -> T:
    """What `run` returns in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, run, *args)


def attack_endlessly(
    port: int,
    requests: list[tuple[bytes, bytes]],
    count: int,
    seconds: float,
    pause_s: float,
    wait_s: float = 0.0,
) -> Attack:
    """So many clients at once that begin a request, wait for an answer, and go on without end."""

    async def all_of_them() -> Attack:
        attack, until_s = Attack(), time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                start, piece = requests[number % len(requests)]
                one = _attack_again(attack, port, start, piece, until_s, pause_s=pause_s, wait_s=wait_s)
                tasks.create_task(one)
        return attack

    return asyncio.run(all_of_them())


def open_streams(port: int, token: str, count: int, seconds: float) -> Attack:
    """So many clients at once that watch queues."""

    async def all_of_them() -> Attack:
        attack, until_s = Attack(), time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            for _ in range(count):
                tasks.create_task(_hold_stream(attack, port, token, until_s))
        return attack

    return asyncio.run(all_of_them())


def flood(port: int, token: str, count: int, seconds: float, body: bytes) -> Told:
    """So many clients at once that push as fast as they are answered."""

    async def all_of_them() -> Told:
        until_s = time.monotonic() + seconds
        clients = [push_steadily(port, token, until_s, body=body) for _ in range(count)]
        told = Told()
        for one in await asyncio.gather(*clients):
            told.statuses.update(one.statuses)
            told.took_s += one.took_s
        return told

    return asyncio.run(all_of_them())


async def _hold_stream(attack: Attack, port: int, token: str, until_s: float) -> None:
    """Open a stream and read it; when it ends or is refused, open another one a second later."""
    while time.monotonic() < until_s:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        attack.opened += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            writer.write(head("GET", "/api/v1/live", token=token, length=0))
            text = await reader.readuntil(b"\r\n\r\n")
            attack.statuses[int(text[9:12])] += 1
            while text[9:12] == b"200" and time.monotonic() < until_s and await reader.read(65_536):
                pass
        writer.transport.abort()
        await asyncio.sleep(1)


async def _attack_again(
    attack: Attack, port: int, start: bytes, piece: bytes, until_s: float, *, pause_s: float, wait_s: float
) -> None:
    """Send a piece without end, whatever is answered; when the server hangs up, begin anew."""
    while time.monotonic() < until_s:
        began = time.monotonic()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        attack.opened += 1
        listening = asyncio.create_task(_listen(attack, reader))
        with suppress(ConnectionError):
            writer.write(start)
            await asyncio.sleep(wait_s)
            while time.monotonic() < until_s and not listening.done():
                writer.write(piece)
                await writer.drain()
                attack.sent_bytes += len(piece)
                await asyncio.sleep(pause_s)
        if time.monotonic() < until_s:
            attack.longest_s = max(attack.longest_s, time.monotonic() - began)
        listening.cancel()
        writer.transport.abort()


async def _listen(attack: Attack, reader: asyncio.StreamReader) -> None:
    """Note what is answered; ends when the server ends the connection."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        text = await reader.readuntil(b"\r\n\r\n")
        attack.statuses[int(text[9:12])] += 1
        while await reader.read(65_536):
            pass


@contextmanager
def memory_watched(api: ApiProcess, into: list[float]) -> Iterator[None]:
    """Note the resident memory twice a second, while the block runs."""

    process = psutil.Process(api.pid)

    async def watch() -> None:
        while True:
            into.append(process.memory_info().rss / 1_048_576)
            await asyncio.sleep(0.5)

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
