"""System events: a spec was applied, a queue was defined or forgotten. Every process must learn it at once.

An event is appended to a log in PostgreSQL and announced by NOTIFY. Every process listens, and also reads the
log every few seconds in case it missed a notification.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import structlog
from psycopg.types.json import Jsonb

from weir.control.database import Database, Row
from weir.control.old_rows import cleaning, delete_old
from weir.control.scopes import scope_of
from weir.control.sql import load_queries
from weir.errors import WeirError
from weir.model.durations import DAY_MS
from weir.model.ids import new_id
from weir.model.names import EnvironmentRef

log = structlog.get_logger(__name__)

SQL = load_queries("weir.control", "system_events.sql")
CHANNEL = "weir_system_events"
# The log is read this often without a notification: one may be lost with its connection.
CATCH_UP_S = 5.0
LOOK_S = 0.5
"""How often events are looked for where notifications cannot arrive."""
# Far longer than any process needs to catch up.
KEPT_MS = DAY_MS


class SystemEventKind(StrEnum):
    """The kinds of events. `serve` acts on each.

    The values are stored and name the same actions in the audit log: never change one.
    """

    SPEC_APPLIED = "spec.apply"
    QUEUE_DEFINED = "queue.define"
    QUEUE_FORGOTTEN = "queue.forget"
    SCHEDULE_CHANGED = "schedule.change"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemEvent:
    position: int
    kind: SystemEventKind
    environment: EnvironmentRef | None
    """None: it concerns every environment."""
    payload: Mapping[str, Any]


Handler = Callable[[SystemEvent], Awaitable[None]]


class SystemEvents:
    """Publishes to the log of system events, and handles every event in it, also from this process."""

    def __init__(
        self, *, database: Database, process: str | None = None, catch_up_s: float = CATCH_UP_S
    ) -> None:
        self._database = database
        self._process = process or new_id()
        self._catch_up_s = catch_up_s
        self._handlers: dict[SystemEventKind, list[Handler]] = defaultdict(list)
        self._position: int | None = None

    def on(self, kind: SystemEventKind, handler: Handler) -> None:
        """Call `handler` for every event of this kind from now on. It must be safe to call twice."""
        self._handlers[kind].append(handler)

    async def publish(
        self,
        kind: SystemEventKind,
        *,
        environment: EnvironmentRef | None = None,
        payload: Mapping[str, Any] | None = None,
    ) -> int:
        """Append an event and notify every process; returns the position of the event in the log."""
        row = await self._database.fetch_one(
            SQL["publish_event"],
            organization=environment.organization if environment else None,
            project=environment.project if environment else None,
            environment=environment.environment if environment else None,
            kind=kind.value,
            payload=Jsonb(dict(payload or {})),
            published_by=self._process,
        )
        return int(row["position"]) if row else 0

    async def run(self) -> None:
        """Listen and delete old events until cancelled. After an outage, catch up first."""
        async with cleaning(self._forget):
            while True:
                try:
                    await self._listen()
                except WeirError as error:
                    log.warning("system events cannot be read for now", error=str(error))
                    await asyncio.sleep(1.0)

    async def _forget(self) -> None:
        await delete_old(self._database, SQL["forget_events"], kept_ms=KEPT_MS)

    async def _listen(self) -> None:
        async with self._database.connection() as connection:
            if connection.pooled:
                return await self._look()
            await connection.execute(f"LISTEN {CHANNEL}")
            while True:
                # A sign of life: nobody would notice a backend that hangs and notifies nobody.
                await connection.read_clock()
                await self.catch_up()
                async for _ in connection.notifies(timeout=self._catch_up_s, stop_after=1):
                    pass

    async def _look(self) -> None:
        """Look for events at intervals: behind a pooler, notifications reach whoever has the session then."""
        while True:
            await self.catch_up()
            await asyncio.sleep(LOOK_S)

    async def catch_up(self) -> int:
        """Handle the events since the last call; returns how many there were.

        The first call only records the current position: the process has read the stores after older events.
        """
        if self._position is None:
            row = await self._database.fetch_one(SQL["last_event"])
            self._position = int(row["position"]) if row else 0
            return 0
        rows = await self._database.fetch(SQL["read_events"], after=self._position)
        for row in rows:
            # Another version of Weir may publish kinds that this one does not know.
            if row["kind"] in _KINDS:
                await self._handle(_event(row))
            self._position = row["position"]
        return len(rows)

    async def _handle(self, event: SystemEvent) -> None:
        for handler in self._handlers.get(event.kind, ()):
            try:
                await handler(event)
            except WeirError as error:
                log.error(
                    "a system event was not handled",
                    position=event.position,
                    kind=event.kind,
                    error=str(error),
                )


_KINDS = frozenset(kind.value for kind in SystemEventKind)


def _event(row: Row) -> SystemEvent:
    scope = None
    if row["organization"] is not None:
        scope = scope_of(row)
    return SystemEvent(
        position=row["position"],
        kind=SystemEventKind(row["kind"]),
        environment=scope,
        payload=row["payload"],
    )
