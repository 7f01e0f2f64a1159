"""Requests and answers about schedules."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field, StrictInt, StrictStr

from weir.api.schemas.shared import Name, Revised, Schema
from weir.model.limits import MAX_SPAN_MS
from weir.schedules.register import ScheduleDetail
from weir.schedules.schedule import RunEnd, RunOutcome, Schedule, ScheduleOrigin, ScheduleRun
from weir.spec.ir import MissedTicks, Overlap, ScheduleSpec, Timing
from weir.spec.timing import MAX_CRON, MIN_EVERY_MS


class ScheduleBody(Schema):
    """What a schedule says, without its name."""

    queue: Name = Field(description="The queue that each tick pushes into.", examples=["reports"])
    cron: Annotated[StrictStr, Field(max_length=MAX_CRON)] | None = Field(
        default=None,
        description="Five fields: minute, hour, day of the month, month, day of the week.",
        examples=["0 3 * * *"],
    )
    every_ms: Annotated[StrictInt, Field(ge=MIN_EVERY_MS, le=MAX_SPAN_MS)] | None = Field(
        default=None, description="An interval instead of `cron`; it counts from 1970-01-01T00:00:00Z."
    )
    timezone: Annotated[StrictStr, Field(max_length=64)] = Field(
        default=Timing().timezone, description="The time zone of `cron`.", examples=["Europe/Berlin"]
    )
    payload: Any = Field(default_factory=dict, description="The payload of each message, any JSON value.")
    missed: MissedTicks = Field(
        default=MissedTicks.SKIP,
        description="What becomes of ticks that are more than a minute late because nothing ran.",
    )
    overlap: Overlap = Field(
        default=Overlap.ALLOW, description="`skip`: a tick does not push until the message before it is done."
    )

    def spec(self, name: str) -> ScheduleSpec:
        return ScheduleSpec(
            name=name,
            queue=self.queue,
            timing=Timing(cron=self.cron, every_ms=self.every_ms, timezone=self.timezone),
            payload=self.payload,
            missed=self.missed,
            overlap=self.overlap,
        )


class NewSchedule(ScheduleBody):
    name: Name = Field(examples=["Nightly"])


class RunView(BaseModel):
    """What became of a tick, or of several that were skipped together."""

    tick_ms: int = Field(description="The time of the tick, or of the last one.")
    outcome: RunOutcome
    ticks: int = Field(description="How many ticks it stands for.")
    asked: bool = Field(description="Whether somebody asked for this run.")
    reason: str | None = Field(description="Why it was skipped or failed.")
    queue: str
    message_id: str | None
    ended: RunEnd | None = Field(description="How the message ended; null while it has not.")
    at_ms: int


class ScheduleView(Revised):
    changed_by: ClassVar[type[BaseModel]] = ScheduleBody

    name: str
    queue: str
    cron: str | None
    every_ms: int | None
    timezone: str
    payload: Any
    missed: MissedTicks
    overlap: Overlap
    origin: ScheduleOrigin = Field(
        description="`spec` or `app`: only a spec, or the code of an app, changes or deletes it."
    )
    app: str | None = Field(description="The app that owns it.")
    paused: bool
    next_tick_ms: int | None = Field(description="Null while it is paused, or if no future date matches.")
    problem: str | None = Field(description="Why a tick that is due has not gone out yet.")
    created_at_ms: int
    updated_at_ms: int


class ListedSchedule(ScheduleView):
    last_run: RunView | None


class ScheduleList(BaseModel):
    items: list[ListedSchedule]


class ScheduleDetailView(ScheduleView):
    next_ticks_ms: list[int] = Field(description="The next ten ticks.")
    runs: list[RunView] = Field(description="The last runs, newest first.")


class AskedRun(BaseModel):
    tick_ms: int = Field(description="The time of the tick that was asked for; `runs` will show it.")


def schedule_view(schedule: Schedule) -> ScheduleView:
    return ScheduleView(**_fields(schedule))


def listed_schedule(schedule: Schedule, last: ScheduleRun | None) -> ListedSchedule:
    return ListedSchedule(**_fields(schedule), last_run=None if last is None else run_view(last))


def detail_view(detail: ScheduleDetail) -> ScheduleDetailView:
    return ScheduleDetailView(
        **_fields(detail.schedule),
        next_ticks_ms=list(detail.next_ticks),
        runs=[run_view(run) for run in detail.runs],
    )


def run_view(run: ScheduleRun) -> RunView:
    return RunView(**{name: getattr(run, name) for name in RunView.model_fields})


def _fields(schedule: Schedule) -> dict[str, Any]:
    spec = schedule.spec
    return {
        "name": spec.name,
        "queue": spec.queue,
        "cron": spec.timing.cron,
        "every_ms": spec.timing.every_ms,
        "timezone": spec.timing.timezone,
        "payload": spec.payload,
        "missed": spec.missed,
        "overlap": spec.overlap,
        "origin": schedule.origin,
        "app": schedule.app,
        "paused": schedule.paused,
        "next_tick_ms": None if schedule.paused else schedule.next_tick_ms,
        "problem": schedule.problem,
        "created_at_ms": schedule.created_at_ms,
        "updated_at_ms": schedule.updated_at_ms,
    }
