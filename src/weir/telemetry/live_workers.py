"""Tells which workers are alive right now, which queues they serve and what they hold.

A worker writes a note about itself every two seconds. The note expires by Redis' clock, so a worker that was
killed or hangs counts as gone within ten seconds, whatever the clocks of the hosts say:

    weir:workers       set       ids of workers; a worker without a note is gone
    weir:worker:ID     string    the note of one worker, as JSON
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
import structlog
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

from weir.errors import BrokerUnavailable
from weir.model.names import EnvironmentRef, QueueRef
from weir.redis_client import DRIVER_ERRORS

_log = structlog.get_logger(__name__)

# To know which workers are alive costs one `SET` per worker every two seconds (0061).
NOTE_EVERY_S = 2.0
# Five missed notes. A busy event loop is late by less, and a verdict names a killed worker within 15 s.
NOTE_EXPIRES_MS = 10_000
_INDEX = "weir:workers"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    """The messages of one queue that one worker holds."""

    queue: QueueRef
    held: int
    """Messages under its leases: running and prefetched ones."""
    running: int
    """Messages whose handler runs."""
    running_ms: int
    """The sum of the times for which these handlers have run so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorker:
    """A worker, as its newest note describes it."""

    slots: int
    """How many handlers it runs at once."""
    free_slots: int
    environment: EnvironmentRef | None = None
    """None means that it serves every environment."""
    queues: frozenset[str] = frozenset()
    """If empty, it serves every queue that has a handler."""
    draining: bool = False
    """True while it finishes the messages that it holds and takes no more."""
    loads: tuple[QueueLoad, ...] = ()

    def takes(self, queue: QueueRef) -> bool:
        """Whether it would take messages of this queue, if the queue has a handler."""
        return not self.draining and is_served(queue, environment=self.environment, names=self.queues)


def is_served(queue: QueueRef, *, environment: EnvironmentRef | None, names: frozenset[str]) -> bool:
    """Whether a worker that is restricted to an environment and to queue names serves this queue."""
    if environment is not None and queue.scope != environment:
        return False
    return not names or queue.queue in names


class AliveSignal:
    """Writes the note of one worker, and removes it when the worker ends."""

    def __init__(
        self,
        redis: Redis | RedisCluster,
        *,
        worker_id: str,
        look: Callable[[], LiveWorker],
        every_s: float = NOTE_EVERY_S,
        expires_ms: int = NOTE_EXPIRES_MS,
    ) -> None:
        self._redis = redis
        self._worker_id = worker_id
        self._look = look
        self._every_s = every_s
        self._expires_ms = expires_ms

    async def run(self) -> None:
        try:
            while True:
                await self._attempt(self.write)
                await asyncio.sleep(self._every_s)
        finally:
            await self._attempt(self.remove)

    async def write(self) -> None:
        """Write the worker's note."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.set(_note_key(self._worker_id), _pack(self._look()), px=self._expires_ms)
        pipeline.sadd(_INDEX, self._worker_id)
        await pipeline.execute()

    async def remove(self) -> None:
        """Remove the note, so that the worker counts as gone before the note expires."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.delete(_note_key(self._worker_id))
        pipeline.srem(_INDEX, self._worker_id)
        await pipeline.execute()

    async def _attempt(self, write: Callable[[], Any]) -> None:
        try:
            await write()
        except DRIVER_ERRORS as error:
            _log.warning("cannot note that this worker is alive", error=str(error))


class WorkerRegister(Protocol):
    """Answers which workers are alive."""

    async def alive(self) -> Sequence[LiveWorker]: ...


class LiveWorkers:
    """Reads from Redis which workers are alive."""

    def __init__(self, redis: Redis | RedisCluster) -> None:
        self._redis = redis

    async def alive(self) -> Sequence[LiveWorker]:
        try:
            # One key per note, because only whole keys expire; the index lists them without a scan.
            members: Any = await self._redis.smembers(_INDEX)
            ids = [member.decode() for member in members]
            notes = await self._notes(ids)
            await self._forget(worker_id for worker_id, note in zip(ids, notes, strict=True) if note is None)
        except DRIVER_ERRORS as error:
            raise BrokerUnavailable(f"Redis does not answer ({error}); try again", retry_after_s=1) from error
        return [_unpack(note) for note in notes if note is not None]

    async def _notes(self, ids: Sequence[str]) -> list[bytes | None]:
        pipeline = self._redis.pipeline(transaction=False)
        for worker_id in ids:
            pipeline.get(_note_key(worker_id))
        return list(await pipeline.execute()) if ids else []

    async def _forget(self, gone: Iterable[str]) -> None:
        """Remove workers without a note from the index."""
        # A worker that was only late adds itself again with its next note.
        ids = list(gone)
        if ids:
            await self._redis.srem(_INDEX, *ids)


def _note_key(worker_id: str) -> str:
    return f"weir:worker:{worker_id}"


def _pack(worker: LiveWorker) -> bytes:
    where = worker.environment
    return orjson.dumps(
        {
            "slots": worker.slots,
            "free_slots": worker.free_slots,
            "environment": None if where is None else list(where.names),
            "queues": sorted(worker.queues),
            "draining": worker.draining,
            "loads": [[*load.queue.names, load.held, load.running, load.running_ms] for load in worker.loads],
        }
    )


def _unpack(note: bytes) -> LiveWorker:
    document = orjson.loads(note)
    where = document["environment"]
    return LiveWorker(
        slots=document["slots"],
        free_slots=document["free_slots"],
        environment=None
        if where is None
        else EnvironmentRef(organization=where[0], project=where[1], environment=where[2]),
        queues=frozenset(document["queues"]),
        draining=document["draining"],
        loads=tuple(_load(values) for values in document["loads"]),
    )


def _load(values: Sequence[Any]) -> QueueLoad:
    organization, project, environment, queue, held, running, running_ms = values
    return QueueLoad(
        queue=QueueRef(organization=organization, project=project, environment=environment, queue=queue),
        held=held,
        running=running,
        running_ms=running_ms,
    )
