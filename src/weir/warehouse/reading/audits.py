"""Reads the history of audits: all of it for operators, and for a tenant the part about its own queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weir.model.names import EnvironmentRef, QueueRef
from weir.warehouse import tables
from weir.warehouse.reading.questions import ask_operator, ask_tenant
from weir.warehouse.reading.reader import Question, Reader

NEWEST = 2**53 - 1
"""A number that no audit reaches, so every audit comes before it; JSON carries no greater one exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAudit:
    """One audit of the history, about the whole installation or about one environment."""

    number: int
    started_ms: int
    drift: int | None
    """None if the audit could not finish; then `reason` says why."""
    reason: str
    ledger_drift: int | None = None
    """Known only for the whole installation and a complete audit, like the next four."""
    tier_drift: int | None = None
    live_drift: int | None = None
    queues: int | None = None
    events: int | None = None
    held_ms: int | None = None
    took_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftOfQueue:
    """What the newest complete audit found wrong with a queue."""

    queue: QueueRef
    drift: int
    counters: Mapping[str, int]
    """Odometer - counted - lost in gaps, by counter; negative if events were counted twice."""
    tier_drift: int
    live_drift: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteAudit:
    number: int
    started_ms: int
    drift: int


class PastAuditReader:
    """Asks the warehouse what audits found; `environment` is None for the whole installation."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def history(
        self, environment: EnvironmentRef | None, *, limit: int, before: int = NEWEST
    ) -> list[PastAudit]:
        """The newest audits before a number, newest first."""
        rows = await self._reader.ask(_history(environment, limit=limit, before=before))
        return [PastAudit(**row) for row in rows]

    async def drifting(self, environment: EnvironmentRef | None, *, limit: int) -> list[DriftOfQueue]:
        """The queues with drift, worst first."""
        return [_drift(row) for row in await self._reader.ask(_drifting(environment, limit=limit))]

    async def drift_of_environments(self, environments: Sequence[EnvironmentRef]) -> dict[QueueRef, int]:
        """The drift of the queues of some environments; queues without drift are left out."""
        names = [scope.names for scope in environments]
        found = await self._reader.ask(ask_operator("drift_of_environments", environments=names))
        return {one.queue: one.drift for one in map(_drift, found)}

    async def newest_complete(self) -> CompleteAudit | None:
        rows = await self._reader.ask(ask_operator("complete_audit"))
        return CompleteAudit(**rows[0]) if rows else None


def _history(environment: EnvironmentRef | None, *, limit: int, before: int) -> Question:
    if environment is None:
        return ask_operator("audits", limit=limit, before=before)
    return ask_tenant(
        "environment_audits", environment, limit=limit, before=before, drift_table=tables.ENVIRONMENT_DRIFT
    )


def _drifting(environment: EnvironmentRef | None, *, limit: int) -> Question:
    if environment is None:
        return ask_operator("drifting_queues", limit=limit)
    return ask_tenant("environment_drifting_queues", environment, limit=limit, drift_table=tables.QUEUE_DRIFT)


def _drift(row: Mapping[str, Any]) -> DriftOfQueue:
    return DriftOfQueue(
        queue=QueueRef(**{name: row[name] for name in tables.QUEUES.dimensions}),
        drift=row["drift"],
        counters={name: count for name, count in row["counters"].items() if count},
        tier_drift=row["tier_drift"],
        live_drift=row["live_drift"],
    )
