"""The parts that all peer scripts share: arguments, clocks and the printed line.

    python PEER.py REDIS_URL JOBS BATCH

A peer prints one JSON object: how many jobs per second it enqueues one by one and in bulk, and how many
no-op jobs per second one worker process completes, from the first handler call to the last. `memory_mib` is
the most memory that its process took.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path


class Finished:
    """Counts handler calls; `wait` returns their rate."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.count = 0
        self.first = 0.0
        self.last = 0.0

    def call(self) -> bool:
        """Count one handler call; true for the last one."""
        now = time.perf_counter()
        if self.count == 0:
            self.first = now
        self.count += 1
        self.last = now
        return self.count >= self.jobs

    def rate(self) -> float:
        return (self.count - 1) / max(self.last - self.first, 1e-9)

    def wait(self, *, timeout_s: float) -> float:
        end = time.perf_counter() + timeout_s
        while self.count < self.jobs and time.perf_counter() < end:
            time.sleep(0.005)
        return self.rate()


def arguments() -> tuple[str, int, int]:
    return sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def rate(count: int, work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def most_memory_mib() -> float:
    """The most memory that this process took. `getrusage` would include its parent's before the exec."""
    (line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM")]
    return round(int(line.split()[1]) / 1024, 1)


def report(*, enqueue: float, bulk: float | None, process: float) -> None:
    """Print the figures. `bulk` is None if a peer has no bulk enqueue; then its single rate counts."""
    figures = {
        "enqueue_per_s": round(enqueue),
        "bulk_enqueue_per_s": round(enqueue if bulk is None else bulk),
        "process_per_s": round(process),
        "has_bulk": bulk is not None,
        "memory_mib": most_memory_mib(),
    }
    print(json.dumps(figures), flush=True)
