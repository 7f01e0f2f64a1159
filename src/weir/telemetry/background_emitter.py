"""Sends events of a user's process to the streams, from a thread of its own; `weir.metrics` exports it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import Self

import structlog
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

from weir.redis_client import DRIVER_ERRORS, connect
from weir.telemetry.codec import MetricEvent
from weir.telemetry.emitter import EmitterCounts, StreamEmitter
from weir.telemetry.events import EventKind
from weir.telemetry.streams import EVENT_LAYOUT, metric_layouts_key

_log = structlog.get_logger(__name__)


class MetricEmitter:
    """Emits events of metrics from any program, with or without asyncio; it never blocks and never raises.

    `emit` puts an event into a bounded buffer; a thread sends the buffer to Redis every second. While Redis
    does not answer, the buffer fills, and then the oldest events are dropped. `counts` tells how many.

    ```python
    with MetricEmitter("redis://127.0.0.1:6379/0") as emitter:
        emitter.emit(MAIL, MetricEvent(dimensions=("ann", "example.org"), values={"sent": 1}))
    ```
    """

    def __init__(
        self, redis_url: str, *, shards: int = 1, capacity: int = 10_000, interval_s: float = 1.0
    ) -> None:
        """`shards` spreads subjects over so many streams; it may be at most the installation's shards."""
        # Opens no connection yet, but refuses a wrong URL here and not in the thread.
        connect(redis_url)
        self._url = redis_url
        self._shards = shards
        self._capacity = capacity
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._waiting: deque[tuple[EventKind, MetricEvent]] = deque(maxlen=capacity)
        self._emitted = self._overflowed = 0
        self._sent = EmitterCounts()
        self._sender: _Sender | None = None
        self._pid = os.getpid()

    @property
    def counts(self) -> EmitterCounts:
        """How many events were emitted, sent and dropped so far."""
        return replace(self._sent, emitted=self._emitted, dropped=self._overflowed + self._sent.dropped)

    def emit(self, kind: EventKind, event: MetricEvent) -> None:
        """Put one event into the buffer; safe from every thread."""
        with self._lock:
            self._start()
            self._emitted += 1
            self._overflowed += len(self._waiting) == self._capacity
            self._waiting.append((kind, event))

    def close(self, *, timeout_s: float = 5.0) -> None:
        """Send the waiting events and end the thread; give up the rest after `timeout_s`."""
        with self._lock:
            sender, self._sender = self._sender, None
        if sender is not None:
            sender.end(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        if self._pid != os.getpid():
            # After a fork, the thread and the events that waited belong to the parent.
            self._pid, self._sender = os.getpid(), None
            self._waiting.clear()
        if self._sender is None:
            self._sender = _Sender(self)

    def _take(self) -> deque[tuple[EventKind, MetricEvent]]:
        with self._lock:
            taken, self._waiting = self._waiting, deque(maxlen=self._capacity)
        return taken


class _Sender:
    """The thread of an emitter, with an event loop of its own."""

    def __init__(self, owner: MetricEmitter) -> None:
        self._owner = owner
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._kinds: dict[str, EventKind | None] = {}
        """Kinds that were emitted; None once their version is announced."""
        # A daemon: a program that forgets to close the emitter still ends.
        self._thread = threading.Thread(target=self._run, name="weir-metrics", daemon=True)
        self._thread.start()

    def end(self, timeout_s: float) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._send())
        except Exception as error:
            # The measured program goes on, whatever the error is.
            _log.error("no more events are sent", error=repr(error))

    async def _send(self) -> None:
        owner = self._owner
        redis = connect(owner._url)
        emitter = StreamEmitter(redis, shards=owner._shards, capacity=owner._capacity)
        emitter.counts = owner._sent
        try:
            while not self._ending.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), owner._interval_s)
                await self._round(redis, emitter)
            # Send the events that came during the last round.
            await self._round(redis, emitter)
        finally:
            await redis.aclose()

    async def _round(self, redis: Redis | RedisCluster, emitter: StreamEmitter) -> None:
        for kind, event in self._owner._take():
            self._kinds.setdefault(kind.name, kind)
            emitter.emit(kind, event)
        try:
            for kind in [kind for kind in self._kinds.values() if kind is not None]:
                await self._announce(redis, kind)
                self._kinds[kind.name] = None
        except DRIVER_ERRORS as error:
            _log.warning("events stay in the buffer", error=str(error))
            return
        await emitter.flush()

    async def _announce(self, redis: Redis | RedisCluster, kind: EventKind) -> None:
        """Announce which version of the kind is written here, so that an older pipeline stops before it."""
        name = f"{EVENT_LAYOUT}{kind.name}"
        for shard in range(self._owner._shards):
            key = metric_layouts_key(shard)
            # Never lowered: another process may already write a newer version.
            if not await redis.hsetnx(key, name, kind.version):
                known = await redis.hget(key, name)
                if int(known or 0) < kind.version:
                    await redis.hset(key, name, kind.version)
