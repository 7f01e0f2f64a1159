"""The values of this room: a schedule as it is stored, and the runs of its ticks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from weir.control.database import Row
from weir.control.scopes import scope_of
from weir.model.ids import MessageId, OperationId
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import MissedTicks, Overlap, ScheduleSpec, Timing


class ScheduleOrigin(StrEnum):
    """Who owns a schedule. The API cannot change a schedule of a spec or an app."""

    API = "api"
    SPEC = "spec"
    APP = "app"
    """The code of an app declares it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule of one environment, and how far it is."""

    id: str
    environment: EnvironmentRef
    spec: ScheduleSpec
    origin: ScheduleOrigin
    paused: bool
    created_at_ms: int
    updated_at_ms: int
    last_tick_ms: int
    """Every tick up to here is decided."""
    next_tick_ms: int | None
    """None if there is no further tick."""
    asked_ms: int | None = None
    """When somebody asked for a run, if that run has not gone out yet."""
    refused_ms: int | None = None
    """A tick that its queue did not take. It is tried again, however late it becomes."""
    refusals: int = 0
    problem: str | None = None
    app: str | None = None
    """The app that owns it, if one does."""

    @property
    def queue(self) -> QueueRef:
        return self.environment.queue(self.spec.queue)


class RunOutcome(StrEnum):
    PUSHED = "pushed"
    SKIPPED = "skipped"
    FAILED = "failed"


class RunEnd(StrEnum):
    """How the message of a run ended."""

    ACKED = "acked"
    DEAD = "dead"
    """The message is a dead letter; it may have expired."""
    CANCELLED = "cancelled"
    """Somebody cancelled the message, or the operation that was to push it."""
    FAILED = "failed"
    """The push became an operation, and that failed: the message never came into the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRun:
    """What became of one tick, or of several that were skipped together."""

    schedule_id: str
    tick_ms: int
    """The tick, or the last of several."""
    outcome: RunOutcome
    queue: str
    at_ms: int
    ticks: int = 1
    asked: bool = False
    """Whether somebody asked for this run."""
    reason: str | None = None
    message_id: MessageId | None = None
    operation_id: OperationId | None = None
    ended: RunEnd | None = None
    """None while its message waits or is worked on, or if nobody looked yet."""


def schedule_of(row: Row) -> Schedule:
    return Schedule(
        id=str(row["id"]),
        environment=scope_of(row),
        spec=ScheduleSpec(
            name=row["name"],
            queue=row["queue"],
            timing=Timing(cron=row["cron"], every_ms=row["every_ms"], timezone=row["timezone"]),
            payload=row["payload"],
            missed=MissedTicks(row["missed"]),
            overlap=Overlap(row["overlap"]),
        ),
        origin=ScheduleOrigin(row["origin"]),
        paused=row["paused"],
        created_at_ms=row["created_at_ms"],
        updated_at_ms=row["updated_at_ms"],
        last_tick_ms=row["last_tick_ms"],
        next_tick_ms=row["next_tick_ms"],
        asked_ms=row["asked_ms"],
        refused_ms=row["refused_ms"],
        refusals=row["refusals"],
        problem=row["problem"],
        app=row["app"],
    )


def run_of(row: Mapping[str, Any]) -> ScheduleRun:
    return ScheduleRun(
        schedule_id=str(row["schedule_id"]),
        tick_ms=row["tick_ms"],
        outcome=RunOutcome(row["outcome"]),
        queue=row["queue"],
        at_ms=row["at_ms"],
        ticks=row["ticks"],
        asked=row["asked"],
        reason=row["reason"],
        message_id=None if row["message_id"] is None else MessageId(str(row["message_id"])),
        operation_id=None if row["operation_id"] is None else OperationId(str(row["operation_id"])),
        ended=None if row["ended"] is None else RunEnd(row["ended"]),
    )
