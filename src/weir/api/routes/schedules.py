"""Schedules of an environment: what is pushed when, what became of the last ticks, pause, resume and run."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from fastapi import APIRouter, status

from weir.api.auditing import audit
from weir.api.auth import Access, Admin, App, Reader, Writer
from weir.api.revisions import IfMatch, unchanged
from weir.api.schemas.schedules import (
    AskedRun,
    NewSchedule,
    ScheduleBody,
    ScheduleDetailView,
    ScheduleList,
    ScheduleView,
    detail_view,
    listed_schedule,
    schedule_view,
)
from weir.api.services import Services, all_or_nothing, announce, present
from weir.control.system_events import SystemEventKind
from weir.schedules.register import Schedules

router = APIRouter(prefix="/api/v1/schedules", tags=["schedules"])


def _room(services: Services) -> Schedules:
    return present(services.schedules, "PostgreSQL")


@router.get("", operation_id="list_schedules")
async def list_schedules(access: Reader, services: App) -> ScheduleList:
    """The schedules of the environment by name, each with its last run."""
    found = await _room(services).of(access.environment)
    return ScheduleList(items=[listed_schedule(schedule, last) for schedule, last in found])


@router.post("", operation_id="create_schedule", status_code=status.HTTP_201_CREATED)
async def create_schedule(body: NewSchedule, access: Admin, services: App) -> ScheduleView:
    """Create a schedule. Its queue must exist; its first tick is the next one from now."""
    room = _room(services)
    async with all_or_nothing(services):
        made = await room.create(access.environment, body.spec(body.name))
        await audit(services, access, "schedule.create", body.name)
    await _announce(services, access, body.name)
    return schedule_view(made)


@router.get("/{name}", operation_id="show_schedule")
async def show_schedule(name: str, access: Reader, services: App) -> ScheduleDetailView:
    """One schedule with its next ten ticks and its last runs."""
    return detail_view(await _room(services).show(access.environment, name))


@router.put("/{name}", operation_id="change_schedule")
async def change_schedule(
    name: str, body: ScheduleBody, access: Admin, services: App, if_match: IfMatch = None
) -> ScheduleView:
    """Replace what a schedule says. With another timing it begins anew."""
    async with _unchanged(services, access, name, if_match):
        changed = await _room(services).change(access.environment, body.spec(name))
        await audit(services, access, "schedule.change", name)
    await _announce(services, access, name)
    return schedule_view(changed)


@router.delete(
    "/{name}",
    operation_id="delete_schedule",
    status_code=status.HTTP_204_NO_CONTENT,
)
async def delete_schedule(name: str, access: Admin, services: App, if_match: IfMatch = None) -> None:
    """Delete a schedule and its runs; messages that it pushed stay."""
    async with _unchanged(services, access, name, if_match):
        await _room(services).delete(access.environment, name)
        await audit(services, access, "schedule.delete", name)
    await _announce(services, access, name)


@router.post("/{name}/pause", operation_id="pause_schedule")
async def pause_schedule(name: str, access: Writer, services: App) -> ScheduleView:
    """Let no tick go out until `resume`."""
    return await _set_paused(services, access, name, paused=True)


@router.post("/{name}/resume", operation_id="resume_schedule")
async def resume_schedule(name: str, access: Writer, services: App) -> ScheduleView:
    """Go on with the next tick from now; ticks during the pause do not count as missed."""
    return await _set_paused(services, access, name, paused=False)


@router.post("/{name}/run", operation_id="run_schedule", status_code=status.HTTP_202_ACCEPTED)
async def run_schedule(name: str, access: Writer, services: App) -> AskedRun:
    """Push once now, even if the schedule is paused or its last message is not done.

    A second request before the message went out asks for the same run.
    """
    async with all_or_nothing(services):
        tick_ms = await _room(services).ask_run(access.environment, name)
        await audit(services, access, "schedule.run", name)
    await _announce(services, access, name)
    return AskedRun(tick_ms=tick_ms)


def _unchanged(
    services: Services, access: Access, name: str, if_match: str | None
) -> AbstractAsyncContextManager[None]:
    async def read() -> ScheduleView:
        return schedule_view((await _room(services).show(access.environment, name)).schedule)

    return unchanged(services, access, if_match, what=f"schedule `{name}`", read=read)


async def _set_paused(services: Services, access: Access, name: str, *, paused: bool) -> ScheduleView:
    async with all_or_nothing(services):
        schedule = await _room(services).pause(access.environment, name, paused=paused)
        await audit(services, access, "schedule.pause" if paused else "schedule.resume", name)
    await _announce(services, access, name)
    return schedule_view(schedule)


async def _announce(services: Services, access: Access, name: str) -> None:
    await announce(services, SystemEventKind.SCHEDULE_CHANGED, access.environment, schedule=name)
