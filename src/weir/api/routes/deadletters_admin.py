"""The operator's view of queues and their dead letters: `/admin/queues` and what is below it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Header, Query
from pydantic import BaseModel, Field

from weir.api.auth import Access, App, Caller
from weir.api.dead_letter_schemas import DeadLetterView, letter_view
from weir.api.previews import preview_of
from weir.api.responses import problems
from weir.api.routes.deadletters import Before, Page, next_page, position, room_of
from weir.api.services import Services
from weir.control.principals import Role
from weir.deadletters.letters import DeadLetter
from weir.errors import WeirError
from weir.model.names import EnvironmentRef

router = APIRouter(prefix="/admin/queues", tags=["admin"])

Tenant = Annotated[
    str | None, Query(max_length=255, description="The environment, for tokens that reach several.")
]
Scope = Annotated[str | None, Header(max_length=1024)]


class AdminQueue(BaseModel):
    name: str
    depth: int
    in_flight: int
    oldest_message_age_seconds: float
    messages_per_minute: float | None = Field(
        description="Handed out over the last minute; null while telemetry is stale or out of reach."
    )
    dead_letters: int


class AdminQueues(BaseModel):
    queues: list[AdminQueue]


class Preview(BaseModel):
    payload: Any = Field(description="The payload, or the beginning of a large one.")


class DeadLetterPreview(BaseModel):
    id: str
    failed_at: int = Field(description="Seconds since the epoch.", examples=[1_708_000_000])
    error: str = Field(examples=["Command failed: guard rejected"])
    attempts: int
    fingerprint: str
    preview: Preview


class DeadLetterPreviews(BaseModel):
    dead_letters: list[DeadLetterPreview]
    next_before: str | None


class Replayed(BaseModel):
    ok: bool = True
    new_message_id: str


class Done(BaseModel):
    ok: bool = True


def scoped(role: Role) -> Callable[..., Awaitable[Access]]:
    """An authenticated caller and the environment that `tenant_id` or the headers choose."""

    async def dependency(
        caller: Caller,
        tenant_id: Tenant = None,
        weir_organization: Scope = None,
        weir_project: Scope = None,
        weir_environment: Scope = None,
    ) -> Access:
        caller.demand(role)
        environment = caller.choose(
            organization=_decoded(weir_organization),
            project=_decoded(weir_project),
            environment=tenant_id if tenant_id is not None else _decoded(weir_environment),
        )
        return Access(principal=caller, environment=environment)

    return dependency


def _decoded(value: str | None) -> str | None:
    return None if value is None else unquote(value)


Reader = Annotated[Access, Depends(scoped(Role.READ))]
Writer = Annotated[Access, Depends(scoped(Role.WRITE))]
Admin = Annotated[Access, Depends(scoped(Role.ADMIN))]


@router.get("", operation_id="admin_queues", responses=problems())
async def queues(access: Reader, services: App) -> AdminQueues:
    """Every queue of the environment: waiting, in flight, age, throughput and the dead."""
    states = await services.broker.states(access.environment)
    rates = await _rates(services, access.environment)
    dead = await room_of(services).letters.counts(access.environment)
    return AdminQueues(
        queues=[
            AdminQueue(
                name=state.queue.queue,
                depth=state.depth,
                in_flight=state.running,
                oldest_message_age_seconds=state.oldest_age_ms / 1000,
                messages_per_minute=None if rates is None else rates.get(state.queue.queue, 0.0),
                dead_letters=dead.get(state.queue.queue, 0),
            )
            for state in states
        ]
    )


@router.get("/{name}/dlq", operation_id="admin_dead_letters", responses=problems())
async def dead_letters(
    name: str, access: Reader, services: App, before: Before = None, limit: Page = 50
) -> DeadLetterPreviews:
    """The dead letters of a queue, the newest first."""
    queue = access.environment.queue(name)
    found = await room_of(services).letters.newest(queue, before=position(before), limit=limit)
    return DeadLetterPreviews(
        dead_letters=[_preview(letter) for letter in found], next_before=next_page(found, limit)
    )


@router.get("/{name}/dlq/{letter_id}", operation_id="admin_dead_letter", responses=problems())
async def dead_letter(name: str, letter_id: str, access: Reader, services: App) -> DeadLetterView:
    """One dead letter, whole, with what became of it."""
    letters = room_of(services).letters
    letter = await letters.find(access.environment.queue(name), letter_id)
    return letter_view(letter, replay_result=await letters.fate_of_replay(letter))


@router.post("/{name}/dlq/{letter_id}/replay", operation_id="admin_replay", responses=problems(409))
async def replay(name: str, letter_id: str, access: Writer, services: App) -> Replayed:
    """Send a dead letter back to its queue."""
    queue = access.environment.queue(name)
    new_id = await room_of(services).letters.replay(queue, letter_id, by=access.actor)
    return Replayed(new_message_id=new_id)


@router.delete("/{name}/dlq/{letter_id}", operation_id="admin_delete_dead_letter", responses=problems(409))
async def delete(name: str, letter_id: str, access: Admin, services: App) -> Done:
    """Delete a dead letter, whatever attempts it had left."""
    queue = access.environment.queue(name)
    await room_of(services).letters.delete(queue, letter_id, by=access.actor, exhausted_only=False)
    return Done()


async def _rates(services: Services, environment: EnvironmentRef) -> dict[str, float] | None:
    """Messages handed out per minute, by queue; None if the warehouse cannot tell."""
    if services.warehouse is None:
        return None
    try:
        return await services.warehouse.rates.dequeued_per_minute(environment)
    except WeirError:
        return None


def _preview(letter: DeadLetter) -> DeadLetterPreview:
    return DeadLetterPreview(
        id=letter.id,
        failed_at=letter.died_at_ms // 1000,
        error=letter.error_text,
        attempts=letter.attempts,
        fingerprint=letter.fingerprint,
        preview=Preview(payload=preview_of(letter.payload)),
    )
