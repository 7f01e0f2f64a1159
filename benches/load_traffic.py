"""An open-loop load generator: pushes arrive at a fixed rate, however the server answers.

Each arrival is the next push of a producer that waits for no answer, so a producer's pushes have an order. An
answer that takes longer than a producer's patience is a timeout: the connection is dropped, and the server
worked in vain. A refused push is not sent again. An arrival for which no producer is free is counted as held
back.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

MakeRequest = Callable[[int, int], bytes]
"""The request for a producer's push with this number."""
TIMED_OUT = 0
_TICK_S = 0.002
_OPENING = 100


@dataclass(slots=True)
class Traffic:
    """The pushes that were sent, and their answers."""

    seconds: float = 0.0
    attempts: int = 0
    unsent: int = 0
    """Arrivals that found no free connection: the generator's own limit."""
    held_back: int = 0
    """Arrivals without a free producer: all wait for an answer."""
    statuses: Counter[int] = field(default_factory=Counter)
    latencies_s: dict[int, list[float]] = field(default_factory=dict)
    accepted: list[tuple[int, int]] = field(default_factory=list)
    """Producer and number, in the order of the answers."""
    estimates: dict[bytes, int] = field(default_factory=dict)
    """Operation id -> estimated wait in ms."""

    def count(self, *statuses: int) -> int:
        return sum(self.statuses[status] for status in statuses)

    def p99_ms(self, status: int) -> float | None:
        found = sorted(self.latencies_s.get(status, ()))
        return round(found[int(0.99 * len(found))] * 1000, 1) if found else None


class _Connection(asyncio.Protocol):
    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self.producer = -1
        self.number = 0
        self.sent_at = 0.0
        self.open = False
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self.producer >= 0:
            self._generator.ended(self, TIMED_OUT, b"")

    def send(self, producer: int, number: int, data: bytes) -> None:
        self.producer, self.number, self.sent_at = producer, number, time.perf_counter()
        self._transport.write(data)

    def drop(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0 or len(self._buffer) < head + 4 + int(header(self._buffer, b"content-length") or 0):
            return
        answer, self._buffer = self._buffer, b""
        self._generator.ended(self, int(answer[9:12]), answer)


class Generator:
    """Runs one stretch of traffic against several servers."""

    def __init__(
        self,
        ports: list[int],
        make: MakeRequest,
        *,
        producers: int,
        patience_s: float,
        max_connections: int,
    ) -> None:
        self._ports = ports
        self._make = make
        self._numbers: dict[int, int] = {}
        self._patience_s = patience_s
        self._max_connections = max_connections
        self._ready = deque(range(producers))
        self._idle: deque[_Connection] = deque()
        self._busy: dict[_Connection, None] = {}
        self._opened = 0
        self._total = 0
        self._connecting: set[asyncio.Task[None]] = set()
        self.traffic = Traffic()

    async def run(self, *, per_s: float, seconds: float) -> Traffic:
        await self._open_all()
        started = time.perf_counter()
        arrived = 0
        while (now := time.perf_counter()) - started < seconds:
            due = int((now - started) * per_s) - arrived
            arrived += due
            self._give_up(now)
            for _ in range(due):
                self._arrive()
            await asyncio.sleep(_TICK_S)
        self.traffic.seconds = time.perf_counter() - started
        await self._finish()
        return self.traffic

    def _arrive(self) -> None:
        if not self._ready:
            self.traffic.held_back += 1
            return
        connection = self._free_connection()
        if connection is None:
            self.traffic.unsent += 1
            return
        producer = self._ready.popleft()
        number = self._numbers.get(producer, 0)
        self._numbers[producer] = number + 1
        self._busy[connection] = None
        self.traffic.attempts += 1
        connection.send(producer, number, self._make(producer, number))

    def _free_connection(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.popleft()
            if connection.open:
                return connection
            self._total -= 1
        self._open()
        return None

    async def _open_all(self) -> None:
        """Open all connections before the load, because producers keep theirs."""
        while self._total < self._max_connections:
            self._open()
            if len(self._connecting) >= _OPENING:
                await asyncio.gather(*self._connecting)
        await asyncio.gather(*self._connecting)

    def _open(self) -> None:
        if self._total >= self._max_connections or len(self._connecting) >= _OPENING:
            return
        self._total += 1
        self._opened += 1
        task = asyncio.ensure_future(self._connect(self._ports[self._opened % len(self._ports)]))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(lambda: _Connection(self), "127.0.0.1", port)
        except OSError:
            self._total -= 1
        else:
            self._idle.append(connection)

    def ended(self, connection: _Connection, status: int, answer: bytes) -> None:
        """Count a request that was answered, or whose connection ended, and free its producer."""
        now = time.perf_counter()
        producer, number = connection.producer, connection.number
        connection.producer = -1
        self._busy.pop(connection, None)
        self.traffic.statuses[status] += 1
        self.traffic.latencies_s.setdefault(status, []).append(now - connection.sent_at)
        if status in (201, 202):
            self.traffic.accepted.append((producer, number))
            if status == 202:
                self._note_estimate(answer)
        self._ready.append(producer)
        if connection.open:
            self._idle.append(connection)
        else:
            self._total -= 1

    def _note_estimate(self, answer: bytes) -> None:
        at = answer.find(b'"operation_id":"') + 16
        wait = answer.find(b'"estimated_wait_ms":') + 20
        text = answer[wait : answer.find(b",", wait)]
        if text != b"null":
            self.traffic.estimates[answer[at : at + 36]] = int(text)

    def _give_up(self, now: float) -> None:
        """Drop the connections of requests that took too long; requests are in the order of their age."""
        late = []
        for connection in self._busy:
            if now - connection.sent_at < self._patience_s:
                break
            late.append(connection)
        for connection in late:
            connection.drop()

    async def _finish(self) -> None:
        give_up = time.perf_counter() + self._patience_s
        while self._busy and time.perf_counter() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for connection in [*self._busy, *self._idle]:
            connection.drop()
        await asyncio.sleep(0.05)


def header(answer: bytes, name: bytes) -> bytes | None:
    """The value of a header in the bytes of an answer, wherever the header stands."""
    at = answer.find(b"\r\n" + name + b": ")
    return None if at < 0 else answer[at + len(name) + 4 : answer.find(b"\r\n", at + 2)]
