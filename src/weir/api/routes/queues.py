"""Queues: define, list, show, pause, resume and delete them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response, status

from weir.api.auditing import audit
from weir.api.auth import Access, Admin, App, Reader, Writer
from weir.api.revisions import IfMatch, check_revision
from weir.api.schemas.queues import (
    Confirmation,
    DeliveryBody,
    QueueBody,
    QueueDetail,
    QueueList,
    QueuePatch,
    QueueView,
    RetentionBody,
)
from weir.api.services import Services, all_or_nothing, announce, present
from weir.broker.checks import check_spec
from weir.control.changes import Risks
from weir.control.queue_definitions import QueueDefinition
from weir.control.system_events import SystemEventKind
from weir.deadletters.bulk_actions import BulkActionKind, NewBulkAction
from weir.deadletters.filters import Filter
from weir.errors import NotFound, Unavailable
from weir.model.beside_loop import beside_loop
from weir.model.message import QueueState
from weir.model.names import QueueRef
from weir.spec.dead_letters import check_dead_letter_queue
from weir.spec.history import history_text, read_history
from weir.spec.ir import DeliveryPolicy, QueueSpec, Retention

router = APIRouter(prefix="/api/v1/queues", tags=["queues"])
VIEW_BYTES = 300
"""What a queue takes in a list of them."""


@router.get("", operation_id="list_queues", response_model=QueueList)
async def list_queues(access: Reader, services: App) -> Response:
    """Every queue of the environment, as it is right now."""
    states = await services.broker.states(access.environment)
    body = await beside_loop(_list_document, len(states) * VIEW_BYTES, states)
    return Response(body, media_type="application/json")


def _list_document(states: list[QueueState]) -> str:
    return QueueList(items=[queue_view(state) for state in states]).model_dump_json(by_alias=True)


@router.get("/{queue}", operation_id="show_queue")
async def show_queue(queue: str, access: Reader, services: App) -> QueueDetail:
    """One queue right now, with what it promises."""
    ref = access.environment.queue(queue)
    definition = None if services.definitions is None else await services.definitions.find(ref)
    return await _detail(services, ref, definition)


async def _detail(services: Services, ref: QueueRef, definition: QueueDefinition | None) -> QueueDetail:
    state = await services.broker.state(ref)
    return QueueDetail(
        **queue_view(state).model_dump(),
        definition=None if definition is None else _body(definition.spec),
        defined_at_ms=None if definition is None else definition.defined_at_ms,
    )


@router.put("/{queue}", operation_id="define_queue")
async def define_queue(
    queue: str, body: QueueBody, access: Admin, services: App, if_match: IfMatch = None
) -> QueueDetail:
    """Create a queue, or replace what it promises from now on: what the body leaves out gets its default.

    409 if a spec or an app has the queue.
    """
    return await _define(services, access, queue, lambda known: body, if_match)


@router.patch("/{queue}", operation_id="change_queue")
async def change_queue(
    queue: str, body: QueuePatch, access: Admin, services: App, if_match: IfMatch = None
) -> QueueDetail:
    """Change some promises of a queue: what the body leaves out stays.

    409 if a spec or an app has the queue.
    """

    def patched(known: QueueDefinition | None) -> QueueBody:
        if known is None:
            raise NotFound(f"there is no queue `{queue}` to change; create it with PUT")
        return body.over(_body(known.spec))

    return await _define(services, access, queue, patched, if_match)


async def _define(
    services: Services,
    access: Access,
    queue: str,
    wanted: Callable[[QueueDefinition | None], QueueBody],
    if_match: str | None,
) -> QueueDetail:
    """Store what is wanted of a queue, given what it is now, and tell the broker. Its action stays."""
    definitions = present(services.definitions, "PostgreSQL")
    changes = present(services.changes, "PostgreSQL")
    ref = access.environment.queue(queue)
    known = await definitions.find(ref)
    likely = _spec(ref, wanted(known), known=known)
    check_spec(likely)
    reordered = known is not None and known.spec.ordering is not likely.ordering
    async with changes.change(ref.scope, risks=Risks(reordered=(likely,) if reordered else ())):
        await definitions.check_unowned(ref)
        await _check_revision(services, ref, if_match)
        # Read again under the lock of the environment: another change may have come first.
        known = await definitions.find(ref)
        body = wanted(known)
        spec = _spec(ref, body, known=known)
        check_spec(spec)
        if spec.delivery.dead_letter_queue is not None:
            others = await definitions.of(ref.scope)
            check_dead_letter_queue(spec, {one.queue.queue: one.spec for one in others})
        await definitions.define(ref, spec)
        await audit(services, access, "queue.define", queue, **body.model_dump(mode="json"))
    await _tell(services, ref)
    await announce(services, SystemEventKind.QUEUE_DEFINED, ref.scope, queue=ref.queue)
    return await show_queue(queue, access, services)


@router.delete("/{queue}", operation_id="forget_queue", status_code=status.HTTP_204_NO_CONTENT)
async def forget_queue(
    queue: str,
    access: Admin,
    services: App,
    dead_letters: Annotated[
        Literal["keep", "purge"] | None,
        Query(
            description="What becomes of the queue's dead letters: `keep` leaves them to be read, exported "
            "and purged, `purge` starts a purge of all of them. Left out, a queue with dead letters is 409."
        ),
    ] = None,
    if_match: IfMatch = None,
) -> None:
    """Remove an empty queue.

    409 if a spec or an app has it, if something uses it, or if it has dead letters.
    """
    ref = access.environment.queue(queue)
    changes = present(services.changes, "PostgreSQL")
    definitions = present(services.definitions, "PostgreSQL")
    async with changes.change(ref.scope, risks=Risks(removed=(queue,))):
        await definitions.check_unowned(ref)
        await _check_revision(services, ref, if_match)
        await definitions.check_unused(ref)
        if dead_letters is None:
            await definitions.check_undead(ref)
        elif dead_letters == "purge":
            purge = NewBulkAction(
                kind=BulkActionKind.PURGE, filter=Filter(queue=queue, include_unexhausted=True)
            )
            actions = present(services.dead_letters, "PostgreSQL").bulk_actions
            await actions.create(ref.scope, purge, by=access.actor)
        await definitions.forget(ref)
        await audit(services, access, "queue.forget", queue, dead_letters=dead_letters)
    await _tell(services, ref)
    await announce(services, SystemEventKind.QUEUE_FORGOTTEN, ref.scope, queue=ref.queue)


@router.post("/{queue}/pause", operation_id="pause_queue")
async def pause_queue(queue: str, access: Writer, services: App) -> Confirmation:
    """Hand out no message until `resume`; leased messages may still be settled."""
    return await _set_paused(services, access, queue, paused=True)


@router.post("/{queue}/resume", operation_id="resume_queue")
async def resume_queue(queue: str, access: Writer, services: App) -> Confirmation:
    """Hand messages out again."""
    return await _set_paused(services, access, queue, paused=False)


async def _set_paused(services: Services, access: Access, queue: str, *, paused: bool) -> Confirmation:
    ref = access.environment.queue(queue)
    async with all_or_nothing(services):
        defined = await present(services.definitions, "PostgreSQL").pause(ref, paused=paused)
        await audit(services, access, "queue.pause" if paused else "queue.resume", queue)
        if not defined:
            # Only the broker may know it, which answers 404 if it does not.
            await (services.broker.pause(ref) if paused else services.broker.resume(ref))
    if defined:
        await _tell(services, ref)
    return Confirmation(status="paused" if paused else "running", paused=paused)


async def _check_revision(services: Services, ref: QueueRef, if_match: str | None) -> None:
    if if_match is not None:
        known = await present(services.definitions, "PostgreSQL").find(ref)
        current = None if known is None else await _detail(services, ref, known)
        check_revision(if_match, current, what=f"queue `{ref.queue}`")


async def _tell(services: Services, ref: QueueRef) -> None:
    """Tell the broker what is stored now; Unavailable if it is told later."""
    if not await present(services.changes, "PostgreSQL").tell(ref.scope, ref.queue):
        raise Unavailable(
            f"`{ref.queue}` is stored, and Redis does not answer; it is told as soon as it does",
            retry_after_s=1,
        )


def queue_view(state: QueueState) -> QueueView:
    """A queue's state with its utilization, which is null without a limit."""
    return QueueView(
        name=state.queue.queue,
        depth=state.depth,
        delayed=state.delayed,
        running=state.running,
        limit=state.limit,
        utilization_pct=100 * state.running / state.limit if state.limit else None,
        oldest_age_ms=state.oldest_age_ms,
        paused=state.paused,
        environment_depth=state.environment_depth,
        environment_running=state.environment_running,
        environment_limit=state.environment_limit,
        totals=dict(state.odometers),
    )


def _spec(ref: QueueRef, body: QueueBody, *, known: QueueDefinition | None) -> QueueSpec:
    before = QueueSpec(name=ref.queue) if known is None else known.spec
    return replace(
        before,
        ordering=body.ordering,
        concurrency=body.concurrency,
        priority=body.priority,
        message_ttl_ms=body.message_ttl_ms,
        idempotency_window_ms=body.idempotency_window_ms,
        trace=body.trace,
        history=read_history(body.history) or 0,
        log_ms=body.log_ms,
        retention=Retention(**body.retention.model_dump()),
        delivery=replace(before.delivery, **body.delivery.model_dump()),
    )


def _body(spec: QueueSpec) -> QueueBody:
    return QueueBody(
        ordering=spec.ordering,
        concurrency=spec.concurrency,
        priority=spec.priority,
        message_ttl_ms=spec.message_ttl_ms,
        idempotency_window_ms=spec.idempotency_window_ms,
        trace=spec.trace,
        history=history_text(spec.history),
        log_ms=spec.log_ms,
        retention=RetentionBody(max_age_ms=spec.retention.max_age_ms, max_depth=spec.retention.max_depth),
        delivery=_delivery(spec.delivery),
    )


def _delivery(policy: DeliveryPolicy) -> DeliveryBody:
    return DeliveryBody(**{name: getattr(policy, name) for name in DeliveryBody.model_fields})
