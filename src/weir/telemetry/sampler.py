"""Measures its own process: one sample per second, and one event with the samples and counts of five seconds.

An event holds sums and the number of samples in them, so that sums of several events weigh correctly. A crash
loses at most the current five seconds.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from array import array
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from weir.model.names import QueueRef
from weir.telemetry.codec import MetricEvent
from weir.telemetry.emitter import StreamEmitter
from weir.telemetry.events import WORKER, WORKER_LAG
from weir.telemetry.process_counts import LAGS, ProcessCounts

SAMPLE_S = 1.0
# One report every five seconds, the width of the finest bucket.
SAMPLES_PER_FLUSH = 5
# A process that serves many queues reports the lags of its busiest ones by name, and the lags of all others
# together. So the number of queues adds at most this many events to a report.
LAG_QUEUES = 50
# 8 kB of samples; further samples become further events.
LAGS_PER_EVENT = 2_000
OTHER_QUEUES = ("", "", "", "")
"""The names that stand for the queues beyond the busiest."""


def _nothing() -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The gauges of a process that the sampler reads."""

    free_slots: Callable[[], int] = _nothing
    pool_size: Callable[[], int] = _nothing
    internal_queue: Callable[[], int] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """The process that an event is about: its role, such as `api` or `worker`, and its ids."""

    role: str
    worker_id: str = field(default_factory=lambda: secrets.token_hex(4))
    """New at every start. It does not reveal the host, because tenants see it."""
    hostname: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)

    @property
    def dimensions(self) -> tuple[str, str, str, str]:
        return self.role, self.hostname, self.worker_id, str(self.pid)


class ProcessSampler:
    """Samples one process; `run` emits the samples with the counts."""

    def __init__(
        self,
        identity: ProcessIdentity,
        emitter: StreamEmitter,
        counts: ProcessCounts,
        *,
        probes: Probes | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._identity = identity
        self._emitter = emitter
        self._probes = probes or Probes()
        self._counts = counts
        self._monotonic = monotonic
        self._sleep = sleep
        self._values: dict[str, int] = {}

    def sample(self, *, lag_s: float) -> None:
        """Read all gauges once."""
        lag_us, free = max(int(lag_s * 1_000_000), 0), self._probes.free_slots()
        least = free if not self._values else min(free, self._values["free_slots_min"])
        self._add("samples", 1)
        self._add_sampled("event_loop_lag_us", lag_us)
        self._add("free_slots_sum", free)
        self._values["free_slots_min"] = least
        self._values["pool_size"] = self._probes.pool_size()
        self._add_sampled("internal_queue", self._probes.internal_queue())
        self._add_sampled("backoff", self._counts.backoff())

    def flush(self) -> None:
        """Emit the current five seconds and begin again."""
        counted = self._counts.take()
        if self._values or counted.values:
            # An event without a sample would have no weight, so a flush that comes early takes one.
            if not self._values:
                self.sample(lag_s=0)
            values, self._values = {**self._values, **counted.values}, {}
            self._emitter.emit(WORKER, MetricEvent(dimensions=self._identity.dimensions, values=values))
        for names, lags_ms in busiest(counted.lags_ms).items():
            self._emit_lags(names, lags_ms)

    def _emit_lags(self, names: tuple[str, ...], lags_ms: array[int]) -> None:
        for at in range(0, len(lags_ms), LAGS_PER_EVENT):
            some = tuple(lags_ms[at : at + LAGS_PER_EVENT])
            event = MetricEvent(dimensions=(self._identity.worker_id, *names), values={}, samples=some)
            self._emitter.emit(WORKER_LAG, event)

    async def run(self) -> None:
        """Sample every second, flush every five seconds, and flush once more at the end."""
        try:
            while True:
                for _ in range(SAMPLES_PER_FLUSH):
                    due = self._monotonic() + SAMPLE_S
                    await self._sleep(SAMPLE_S)
                    self.sample(lag_s=self._monotonic() - due)
                self.flush()
                # Send now, and not with the emitter's next round, so that a kill loses at most five seconds.
                await self._emitter.flush()
        finally:
            self.flush()
            # The loop of the emitter may have ended before this one.
            await self._emitter.flush()

    def _add(self, name: str, amount: int) -> None:
        self._values[name] = self._values.get(name, 0) + amount

    def _raise(self, name: str, value: int) -> None:
        self._values[name] = max(self._values.get(name, 0), value)

    def _add_sampled(self, name: str, value: int) -> None:
        self._add(f"{name}_sum", value)
        self._raise(f"{name}_max", value)


def busiest(lags_ms: Mapping[QueueRef, array[int]]) -> dict[tuple[str, ...], array[int]]:
    """The lags by the names of their queue: each of the busiest queues, and all others together."""
    ranked = sorted(lags_ms.items(), key=lambda item: len(item[1]), reverse=True)
    found: dict[tuple[str, ...], array[int]] = {queue.names: lags for queue, lags in ranked[:LAG_QUEUES]}
    for _, lags in ranked[LAG_QUEUES:]:
        found.setdefault(OTHER_QUEUES, array(LAGS)).extend(lags)
    return found
