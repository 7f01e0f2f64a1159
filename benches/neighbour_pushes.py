"""Open-loop pushes of one tenant, in a process of their own: each is timed from the moment when it was due.

`python -m benches.neighbour_pushes PORT QUEUE` reads the token from its environment and pushes until its
standard input ends; then it prints what it saw as one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from contextlib import suppress

import uvloop

TOKEN = "WEIR_BENCH_TOKEN"
PER_S = 50
_PATIENCE_S = 60.0
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pushes:
    """Pushes that become due at a fixed rate, however late the answers to the earlier ones are."""

    def __init__(self, port: int, queue: str, token: str) -> None:
        self._port = port
        self._request = _request(queue, token)
        self._idle: list[Connection] = []
        self.statuses: Counter[str] = Counter()
        self.waits_ms: list[float] = []

    async def run(self, stop: asyncio.Event) -> None:
        began_s, number = time.perf_counter(), 0
        async with asyncio.TaskGroup() as tasks:
            while not stop.is_set():
                due_s = began_s + number / PER_S
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), max(0.0, due_s - time.perf_counter()))
                    break
                tasks.create_task(self._push(due_s))
                number += 1

    async def _push(self, due_s: float) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                status = await self._answer()
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            status = type(error).__name__
        self.statuses[status] += 1
        self.waits_ms.append((time.perf_counter() - due_s) * 1_000)

    async def _answer(self) -> str:
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(self._request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
            await reader.readexactly(int(length[16:]))
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        return head[9:12].decode()


def _request(queue: str, token: str) -> bytes:
    body = json.dumps({"items": [{"queue": queue, "payload": {"order": 1}}]}).encode()
    head = (
        "POST /api/v1/push HTTP/1.1\r\nhost: weir\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {token}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _run(port: int, queue: str) -> None:
    stop = asyncio.Event()
    pushes = Pushes(port, queue, os.environ[TOKEN])
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
    await pushes.run(stop)
    print(json.dumps({"statuses": pushes.statuses, "waits_ms": pushes.waits_ms}))


if __name__ == "__main__":
    uvloop.run(_run(int(sys.argv[1]), sys.argv[2]))
