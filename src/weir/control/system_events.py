"""System events: what every process must hear of, at once and before anything that is queued.

A spec was applied, a queue was defined or forgotten. An event is appended to a log in PostgreSQL and
announced; every process listens, and reads the log again every few seconds in case it missed the call.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from psycopg.types.json import Jsonb

from weir.control.database import Database, Row
from weir.control.sql import load_queries
from weir.errors import WeirError
from weir.model.durations import DAY_MS
from weir.model.ids import new_id
from weir.model.names import EnvironmentRef

log = logging.getLogger(__name__)

SQL = load_queries("weir.control", "system_events.sql")
CHANNEL = "weir_system_events"
CATCH_UP_S = 5.0
KEPT_MS = DAY_MS


class SystemEventKind(StrEnum):
    """Everything that processes tell each other. `serve` acts on each.

    The values are stored and name the same actions in the audit log: never change one.
    """

    SPEC_APPLIED = "spec.apply"
    QUEUE_DEFINED = "queue.define"
    QUEUE_FORGOTTEN = "queue.forget"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemEvent:
    position: int
    kind: SystemEventKind
    environment: EnvironmentRef | None
    """None: it concerns everyone."""
    payload: Mapping[str, Any]
    published_by: str


Handler = Callable[[SystemEvent], Awaitable[None]]


class SystemEvents:
    """The log of system events as one process writes and hears it, its own events included."""

    def __init__(
        self, *, database: Database, process: str | None = None, catch_up_s: float = CATCH_UP_S
    ) -> None:
        self._database = database
        self._process = process or new_id()
        self._catch_up_s = catch_up_s
        self._handlers: dict[SystemEventKind, list[Handler]] = defaultdict(list)
        self._position: int | None = None

    def on(self, kind: SystemEventKind, handler: Handler) -> None:
        """Call `handler` for every event of this kind from now on; it must be safe to call twice."""
        self._handlers[kind].append(handler)

    async def publish(
        self,
        kind: SystemEventKind,
        *,
        environment: EnvironmentRef | None = None,
        payload: Mapping[str, Any] | None = None,
    ) -> int:
        """Tell every process; returns the event's position in the log."""
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
        """Listen until cancelled; after an outage, catch up first."""
        while True:
            try:
                await self._listen()
            except WeirError as error:
                log.warning("system events are not heard for now: %s", error)
                await asyncio.sleep(1.0)

    async def _listen(self) -> None:
        async with self._database.connection() as connection:
            await connection.execute(f"LISTEN {CHANNEL}")
            while True:
                # A backend that hangs would notify nobody, and nobody would know.
                await connection.read_clock()
                await self.catch_up()
                async for _ in connection.notifies(timeout=self._catch_up_s, stop_after=1):
                    pass

    async def catch_up(self) -> int:
        """Handle what was published since the last time; how many events. The first call only records the
        current position: what came before it, the process has read from the stores itself."""
        if self._position is None:
            row = await self._database.fetch_one(SQL["last_event"])
            self._position = int(row["position"]) if row else 0
            await self._database.execute(SQL["forget_events"], kept_ms=KEPT_MS)
            return 0
        rows = await self._database.fetch(SQL["read_events"], after=self._position)
        for row in rows:
            # A kind that another version of Weir publishes means nothing here.
            if row["kind"] in _KINDS:
                await self._handle(_event(row))
            self._position = row["position"]
        return len(rows)

    async def _handle(self, event: SystemEvent) -> None:
        for handler in self._handlers.get(event.kind, ()):
            try:
                await handler(event)
            except WeirError as error:
                log.error("the system event %s `%s` was not handled: %s", event.position, event.kind, error)


_KINDS = frozenset(kind.value for kind in SystemEventKind)


def _event(row: Row) -> SystemEvent:
    scope = None
    if row["organization"] is not None:
        scope = EnvironmentRef(
            organization=row["organization"], project=row["project"], environment=row["environment"]
        )
    return SystemEvent(
        position=row["position"],
        kind=SystemEventKind(row["kind"]),
        environment=scope,
        payload=row["payload"],
        published_by=row["published_by"],
    )
