"""Watches the disk of a Redis on this machine, so that pushes are refused before it is full.

Below a floor of free space everything that puts messages in is refused, while pops, acks and deletes go on;
what is acknowledged grows the append-only file too, so below a lower floor it is rewritten. A write that the
disk cut short lets the refusal hold until the file has been rewritten.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from weir.api.services import ReadinessProbe
from weir.broker.disk_room import DiskRoom
from weir.broker.failures import no_disk, translated
from weir.broker.preflight import folder_of_server
from weir.broker.runner import Client
from weir.errors import BrokerUnavailable, WeirError

log = structlog.get_logger("weir.disk")
PERIOD_S = 0.5
_LOCAL = {"localhost", "127.0.0.1", "::1", None}
# A rewrite that could not begin, or failed, is tried again after this time.
_REWRITE_AGAIN_S = 30.0
# The refusal ends with this much more room than it began, so that it does not come and go.
_EASED = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFloors:
    """Free bytes below which messages are refused, and below which the append-only file is rewritten."""

    refuse_bytes: int
    rewrite_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskState:
    """What was seen of the disk at the last look."""

    folder: str
    free_bytes: int
    refusal: str = ""
    """Why messages are refused; empty while there is room."""


class DiskWatch:
    """Looks at the disk twice per second, if the Redis runs on this machine and this process may look."""

    def __init__(self, redis: Client, room: DiskRoom, *, url: str, floors: DiskFloors) -> None:
        self._redis = redis
        self._room = room
        self._local = urlsplit(url).hostname in _LOCAL and "+cluster" not in url
        self._floors = floors
        self._folder: Path | None = None
        self._short = False
        """Whether a write was cut short, and the file has not been rewritten since."""
        self._rewriting = False
        self._rewrite_at_s = 0.0
        self.state: DiskState | None = None
        """None if nothing can be seen of the disk."""

    def refusal(self) -> WeirError | None:
        """The error of a push while there is no room: it is not queued in PostgreSQL either."""
        return no_disk(self.state.refusal) if self.state and self.state.refusal else None

    def probe(self) -> ReadinessProbe:
        """Names a disk without room. The process stays ready: a balancer would take the acks away too."""

        async def check() -> None:
            if (refusal := self.refusal()) is not None:
                raise refusal

        return ReadinessProbe(name="disk", check=check, essential=False)

    async def families(self) -> AsyncIterator[Metric]:
        """The disk for Prometheus; nothing if it cannot be seen."""
        if self.state is None:
            return
        yield GaugeMetricFamily(
            "weir_redis_disk_free_bytes", "Free bytes on the disk of Redis.", self.state.free_bytes
        )
        yield GaugeMetricFamily(
            "weir_redis_disk_refuses",
            "1 while messages are refused because the disk of Redis has too little room.",
            int(bool(self.state.refusal)),
        )

    async def run(self) -> None:
        """Look until cancelled. While Redis does not answer, the disk is looked at all the same."""
        if not self._local:
            await asyncio.Event().wait()
        while True:
            try:
                await self.look()
            except WeirError as error:
                log.warning("the disk of Redis cannot be looked after for now", error=str(error))
            await asyncio.sleep(PERIOD_S)

    async def look(self) -> None:
        """Look once: note the free space, tell Redis whether there is room, rewrite its file if needed."""
        try:
            info = await self._ask()
        except BrokerUnavailable:
            self._note(short=self._short)
            raise
        self._folder = folder_of_server(int(info.get("process_id", 0)))
        failing = info.get("aof_last_write_status", "ok") != "ok"
        self._short = self._short or failing
        self._end_rewrite(info)
        before, state = self.state, self._note(short=self._short)
        if state is None:
            return
        await self._say(before, state)
        # While a part of a write waits in the server's memory, a rewrite would put it into both files.
        if not failing:
            await self._rewrite(info, state)

    async def _ask(self) -> dict[str, Any]:
        with translated():
            found: dict[str, Any] = await self._redis.execute_command("INFO")
        return found

    def _note(self, *, short: bool) -> DiskState | None:
        if self._folder is None:
            self.state = None
            return None
        try:
            seen = os.statvfs(self._folder)
            shown = str(self._folder.readlink())
        except OSError:
            # The server has just ended; its folder is known again as soon as it is back.
            return self.state
        free = seen.f_bavail * seen.f_frsize
        self.state = DiskState(folder=shown, free_bytes=free, refusal=self._refusal(shown, free, short=short))
        return self.state

    def _refusal(self, folder: str, free: int, *, short: bool) -> str:
        held = self.state is not None and self.state.refusal
        if free < self._floors.refuse_bytes * (_EASED if held else 1):
            return (
                f"the disk of Redis (`{folder}`) has {free:,} bytes free, and messages are taken from "
                f"{self._floors.refuse_bytes:,} on; acknowledge or purge messages, or make room"
            )
        if short:
            return (
                f"a write to the disk of Redis (`{folder}`) was cut short; messages are taken again as soon "
                "as its append-only file has been rewritten"
            )
        return ""

    async def _say(self, before: DiskState | None, state: DiskState) -> None:
        """Repeat a refusal before it ends, and lift it."""
        if state.refusal:
            if before is None or not before.refusal:
                log.warning("messages are refused", reason=state.refusal)
            await self._room.refuse(state.refusal)
        elif before is None or before.refusal:
            await self._room.allow()
            if before is not None:
                log.info("the disk of Redis has room again", free_bytes=state.free_bytes)

    async def _rewrite(self, info: dict[str, Any], state: DiskState) -> None:
        """Begin a rewrite after a short write, or below the lower floor, if the new file has room."""
        now_s = asyncio.get_running_loop().time()
        low = state.free_bytes < self._floors.rewrite_bytes and _would_shrink(info)
        if not (self._short or low) or self._rewriting or now_s < self._rewrite_at_s:
            return
        if state.free_bytes < _new_file_bytes(info):
            return
        self._rewrite_at_s = now_s + _REWRITE_AGAIN_S
        with translated():
            await self._redis.execute_command("BGREWRITEAOF")
        self._rewriting = True
        log.info("the append-only file of Redis is rewritten", free_bytes=state.free_bytes, short=self._short)

    def _end_rewrite(self, info: dict[str, Any]) -> None:
        if self._rewriting and not (info.get("aof_rewrite_in_progress") or info.get("aof_rewrite_scheduled")):
            self._rewriting = False
            if info.get("aof_last_bgrewrite_status") == "ok":
                self._short, self._rewrite_at_s = False, 0.0


def _would_shrink(info: dict[str, Any]) -> bool:
    base = int(info.get("aof_base_size", 0))
    return int(info.get("aof_current_size", 0)) > 1.5 * max(base, 1 << 20)


def _new_file_bytes(info: dict[str, Any]) -> int:
    """An upper bound of a rewritten file."""
    return min(int(info.get("used_memory_dataset", 0)), int(info.get("aof_current_size", 1 << 62)))
