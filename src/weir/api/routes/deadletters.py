"""Dead letters: counts, groups, letters, and the bulk actions that send them back or delete them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Response, status

from weir.api.auth import Access, Admin, App, Caller, Reader, Writer
from weir.api.schemas.dead_letters import (
    AuditView,
    DeadCountList,
    DeadCountView,
    DeadLetterList,
    DeadLetterView,
    GroupList,
    PurgeBody,
    RedriveBody,
    RedrivenView,
    SampleList,
    TaskList,
    TaskView,
    group_view,
    letter_document,
    sample_document,
    task_view,
)
from weir.api.schemas.shared import Name
from weir.api.services import Services, present
from weir.control.principals import Role
from weir.control.scopes import scope_names
from weir.deadletters.audit import DeadLetterAuditor, last_audit
from weir.deadletters.bulk_actions import BulkAction, NewBulkAction
from weir.deadletters.dead_letter import Position
from weir.deadletters.groups import list_groups
from weir.deadletters.samples import read_samples
from weir.deadletters.services import DeadLetterServices
from weir.deadletters.store import LetterPage
from weir.deadletters.summary import read_summary
from weir.errors import Conflict, InvalidInput, NotFound

router = APIRouter(tags=["dead letters"])
COUNTING_S = 30.0
"""How long PostgreSQL may take to count one consumer's letters while somebody waits for the answer."""

Page = Annotated[int, Query(ge=1, le=500)]
Before = Annotated[str | None, Query(max_length=80, description="`next_before` of the page before.")]


def dead_letters_of(services: Services) -> DeadLetterServices:
    return present(services.dead_letters, "dead letters")


@router.get("/api/v1/dlq/groups", operation_id="list_dead_letter_groups")
async def groups(
    access: Reader,
    services: App,
    queue: Annotated[Name | None, Query()] = None,
    limit: Page = 100,
) -> GroupList:
    """Errors that look alike, the largest group first."""
    dead = dead_letters_of(services)
    found = await list_groups(
        dead.database, access.environment, now_ms=dead.clock.now_ms(), queue=queue, limit=limit
    )
    return GroupList(items=[group_view(group) for group in found])


@router.get("/api/v1/dlq/letters", operation_id="list_dead_letters", response_model=DeadLetterList)
async def letters(
    access: Reader,
    services: App,
    queue: Annotated[Name, Query()],
    fingerprint: Annotated[str | None, Query(max_length=64)] = None,
    before: Before = None,
    limit: Page = 50,
) -> Response:
    """The dead letters of a queue, the last enqueued first. A page ends after about 1 MiB of letters."""
    found = await dead_letters_of(services).letters.newest(
        access.environment.queue(queue), fingerprint=fingerprint, before=position(before), limit=limit
    )
    items = [letter_document(letter) for letter in found.letters]
    return json_response({"items": items, "next_before": next_page(found)})


@router.get("/api/v1/dlq/consumers", operation_id="list_dead_counts")
async def dead_counts(access: Reader, services: App) -> DeadCountList:
    """The number of dead letters of each consumer of the environment: exact, from the summary alone."""
    reach = access.principal.narrowed(**scope_names(access.environment))
    rows = await read_summary(dead_letters_of(services).database, reach)
    names = DeadCountView.model_fields
    return DeadCountList(
        items=[DeadCountView(**{name: getattr(row, name) for name in names}) for row in rows]
    )


@router.get("/api/v1/dlq/letters/{letter_id}", operation_id="show_dead_letter", response_model=DeadLetterView)
async def dead_letter(
    letter_id: str, access: Reader, services: App, queue: Annotated[Name, Query()]
) -> Response:
    """One dead letter of a queue, whole, with what became of it."""
    letters = dead_letters_of(services).letters
    letter = await letters.find(access.environment.queue(queue), letter_id)
    fate = await letters.fate_of_replay(letter)
    return json_response(letter_document(letter, redrive_result=fate))


@router.post("/api/v1/dlq/letters/{letter_id}/redrive", operation_id="redrive_dead_letter")
async def redrive_one(
    letter_id: str, access: Writer, services: App, queue: Annotated[Name, Query()]
) -> RedrivenView:
    """Send one dead letter back to its queue, at once."""
    ref = access.environment.queue(queue)
    new_id = await dead_letters_of(services).letters.redrive(ref, letter_id, by=access.actor)
    return RedrivenView(new_message_id=new_id)


@router.delete(
    "/api/v1/dlq/letters/{letter_id}",
    operation_id="delete_dead_letter",
    status_code=status.HTTP_204_NO_CONTENT,
)
async def delete_one(
    letter_id: str, access: Admin, services: App, queue: Annotated[Name, Query()], force: bool = False
) -> None:
    """Delete one dead letter that used up its attempts; any other needs `force`."""
    ref = access.environment.queue(queue)
    await dead_letters_of(services).letters.delete(ref, letter_id, by=access.actor, exhausted_only=not force)


@router.post(
    "/api/v1/dlq/redrives",
    operation_id="redrive",
    status_code=status.HTTP_202_ACCEPTED,
)
async def redrive(body: RedriveBody, access: Writer, services: App, response: Response) -> TaskView:
    """Send dead letters back to their queues, as a bulk action."""
    return await _begin(services, access, body.bulk_action(), response)


@router.post("/api/v1/dlq/purges", operation_id="purge", status_code=status.HTTP_202_ACCEPTED)
async def purge(body: PurgeBody, access: Admin, services: App, response: Response) -> TaskView:
    """Delete dead letters, as a bulk action."""
    return await _begin(services, access, body.bulk_action(), response)


async def _begin(services: Services, access: Access, new: NewBulkAction, response: Response) -> TaskView:
    action = await dead_letters_of(services).bulk_actions.create(access.environment, new, by=access.actor)
    response.headers["location"] = task_location(action)
    return task_view(action)


def task_location(action: BulkAction) -> str:
    return f"/api/v1/dlq/tasks/{action.id}"


@router.get("/api/v1/dlq/tasks", operation_id="list_dead_letter_tasks")
async def tasks(access: Reader, services: App, limit: Page = 50) -> TaskList:
    """The newest bulk actions: redrives, purges, cancellations and replays from logs."""
    found = await dead_letters_of(services).bulk_actions.newest(access.environment, limit=limit)
    return TaskList(items=[task_view(action) for action in found])


@router.get("/api/v1/dlq/tasks/{task_id}", operation_id="show_dead_letter_task")
async def task(task_id: str, access: Reader, services: App) -> TaskView:
    """One bulk action, and how far it is."""
    return task_view(await dead_letters_of(services).bulk_actions.find(access.environment, task_id))


@router.get(
    "/api/v1/dlq/tasks/{task_id}/samples", operation_id="list_dead_letter_samples", response_model=SampleList
)
async def samples(task_id: str, access: Reader, services: App) -> Response:
    """Some of the letters that a redrive or purge matched, each before and after the patch."""
    dead = dead_letters_of(services)
    action = await dead.bulk_actions.find(access.environment, task_id)
    found = await read_samples(dead.database, action)
    return json_response({"items": [sample_document(one) for one in found]})


@router.post("/api/v1/dlq/tasks/{task_id}/pause", operation_id="pause_dead_letter_task")
async def pause(task_id: str, access: Writer, services: App) -> TaskView:
    """Pause a bulk action; what it did stays done."""
    actions = dead_letters_of(services).bulk_actions
    return task_view(await actions.pause(access.environment, task_id, by=access.actor))


@router.post("/api/v1/dlq/tasks/{task_id}/resume", operation_id="resume_dead_letter_task")
async def resume(task_id: str, access: Writer, services: App) -> TaskView:
    """Let a bulk action go on where it stopped. If its canary stopped it, it begins with a new canary."""
    actions = dead_letters_of(services).bulk_actions
    return task_view(await actions.resume(access.environment, task_id, by=access.actor))


@router.post("/api/v1/dlq/tasks/{task_id}/cancel", operation_id="cancel_dead_letter_task")
async def cancel(task_id: str, access: Writer, services: App) -> TaskView:
    """End a bulk action; what it did stays done."""
    actions = dead_letters_of(services).bulk_actions
    return task_view(await actions.cancel(access.environment, task_id, by=access.actor))


@router.get("/api/v1/dlq/audit", operation_id="show_dead_letter_audit")
async def audit(access: Reader, services: App) -> AuditView:
    """The latest audit of the counts; its drift must be 0."""
    found = await last_audit(dead_letters_of(services).database)
    if found is None:
        raise NotFound("there was no audit yet")
    return AuditView(**asdict(found))


@router.post("/api/v1/dlq/audit", operation_id="run_dead_letter_audit")
async def run_audit(caller: Caller, services: App) -> AuditView:
    """Recount every consumer of every tenant now, and repair what differs; for operators."""
    caller.demand(Role.OPERATOR)
    auditor = DeadLetterAuditor(dead_letters_of(services).database, counting_s=COUNTING_S)
    found = await auditor.audit(force=True)
    if found is None:
        raise Conflict("another audit of the dead letters is at work; try again later")
    return AuditView(**asdict(found))


def position(before: str | None) -> Position | None:
    """The position at which a page begins; the text is `next_before` of the page before."""
    if before is None:
        return None
    enqueued_at_ms, _, letter_id = before.partition("_")
    try:
        if int(enqueued_at_ms) < 2**63 and len(letter_id) == 36:
            return Position(enqueued_at_ms=int(enqueued_at_ms), id=letter_id)
    except ValueError:
        pass
    raise InvalidInput("`before` is not from a page of this list")


def next_page(page: LetterPage) -> str | None:
    """The `before` of the next page; None after the last one."""
    return None if page.next is None else f"{page.next.enqueued_at_ms}_{page.next.id}"


def json_response(document: dict[str, Any]) -> Response:
    """An answer with payloads in it, which are written as they came."""
    return Response(orjson.dumps(document), media_type="application/json")
