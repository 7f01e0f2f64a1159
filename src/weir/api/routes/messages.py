"""Messages: lists by state, one whole message, its timeline."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from fastapi.responses import Response

from weir.api.auth import App, Reader
from weir.api.message_lives import life_view
from weir.api.message_lookup import FoundMessage, look_up
from weir.api.outcomes import NOWHERE, kept_members
from weir.api.routes.operations import operation_view
from weir.api.routes.pop import payload_members
from weir.api.schemas.messages import (
    AttemptView,
    FoundByKeyView,
    LeaseHolderView,
    MessageListView,
    MessageView,
    MomentView,
    RelativeView,
    ShownState,
    StateCountsView,
    TimelineView,
    WaitingMessageView,
    listed_view,
)
from weir.api.services import Services, present
from weir.errors import ControlUnavailable, InvalidInput, NotFound
from weir.lineage.children import Relative
from weir.model.beside_loop import beside_loop
from weir.model.ids import MessageId, check_id
from weir.model.inspection import (
    MAX_PAGE,
    MAX_SEARCH_BYTES,
    MessageDetail,
    MessageFilter,
    MessageState,
)
from weir.model.limits import MAX_HEADER_BYTES, MAX_NAME_BYTES
from weir.model.message import Kept, KeptKind
from weir.model.names import EnvironmentRef, QueueRef
from weir.workers.timeline import Timeline

_ENDED_AS = {KeptKind.RESULT: "done"}
router = APIRouter(tags=["messages"])


@router.get("/api/v1/queues/{queue}/messages", operation_id="list_messages")
async def list_messages(
    queue: str,
    access: Reader,
    services: App,
    state: ShownState = ShownState.READY,
    key: Annotated[str | None, Query(min_length=1, max_length=MAX_NAME_BYTES)] = None,
    header: Annotated[
        str | None,
        Query(min_length=2, max_length=MAX_HEADER_BYTES, description="A name and its value: `name=value`."),
    ] = None,
    text: Annotated[
        str | None,
        Query(
            min_length=1, max_length=MAX_SEARCH_BYTES, description="Text that the payload holds somewhere."
        ),
    ] = None,
    cursor: Annotated[str | None, Query(min_length=1, max_length=2_048)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
) -> MessageListView:
    """The messages of a queue in one state, with the beginning of each payload, and the count per state."""
    ref = access.environment.queue(queue)
    match = _filter(key=key, header=header, text=text)
    counts = await _counts(services, ref)
    if state is ShownState.QUEUED:
        return await _list_queued(services, ref, counts, match=match, cursor=cursor, limit=limit)
    page = await services.broker.list_messages(
        ref, MessageState(state.value), match=match, cursor=cursor, limit=limit
    )
    return MessageListView(
        state=state,
        counts=counts,
        items=[listed_view(message) for message in page.messages],
        operations=[],
        scanned=page.scanned,
        next_cursor=page.cursor,
    )


@router.get("/api/v1/queues/{queue}/messages/find", operation_id="find_message_by_key")
async def find_message_by_key(
    queue: str,
    access: Reader,
    services: App,
    idempotency_key: Annotated[str, Query(min_length=1, max_length=MAX_NAME_BYTES)],
) -> FoundByKeyView:
    """The message that was pushed with an idempotency key, while the key is remembered."""
    found = await services.broker.find_idempotency_key(access.environment.queue(queue), idempotency_key)
    if found is None:
        raise NotFound(
            f"no message of `{queue}` is known by the idempotency key `{idempotency_key}`; a key is known "
            "until its window is over"
        )
    return FoundByKeyView(message_id=found, queue=queue)


@router.get(
    "/api/v1/messages/{message_id}",
    operation_id="show_message",
    response_model=MessageView,
)
async def show_message(message_id: str, access: Reader, services: App) -> Response:
    """Everything about a message: where it is now, its payload, its attempts and its timeline."""
    found, kept = await _look_up_with_kept(services, access.environment, message_id)
    size = 0 if found.detail is None else len(found.detail.payload)
    body = await beside_loop(_message_document, size, found, kept, trace_url=services.trace_url)
    return Response(body, media_type="application/json")


def _message_document(found: FoundMessage, kept: Kept | None, *, trace_url: str | None) -> bytes:
    document = _message_view(found, trace_url=trace_url).model_dump(mode="json")
    document |= kept_members(kept)
    if found.detail is not None:
        document["message"] |= payload_members(found.detail.payload, found.detail.headers.get("content-type"))
    return orjson.dumps(document)


async def _look_up_with_kept(
    services: Services, environment: EnvironmentRef, message_id: str
) -> tuple[FoundMessage, Kept | None]:
    """A message, and its kept result or progress. A result shows that it ended, even if nothing else does."""
    wanted = MessageId(check_id(message_id, what="message"))
    found: FoundMessage | NotFound
    try:
        found = await look_up(services, environment, wanted)
    except NotFound as unknown:
        found = unknown
    # Read the message before its result: an ack removes the message and stores the result in one step.
    kept = await services.broker.kept(environment, wanted)
    state = None if kept is None else _ENDED_AS.get(kept.kind)
    if isinstance(found, NotFound):
        if state is None:
            raise found
        nothing = Timeline(message_id=wanted, queue=None, state=state, moments=())
        return FoundMessage(message_id=wanted, state=state, detail=None, timeline=nothing), kept
    return replace(found, state=state) if state is not None and found.state in NOWHERE else found, kept


@router.get("/api/v1/messages/{message_id}/timeline", operation_id="show_message_timeline")
async def show_timeline(message_id: str, access: Reader, services: App) -> TimelineView:
    """The timeline of a message: receipt, operation, enqueue, attempts with errors, death, redrive."""
    found = (await look_up(services, access.environment, message_id)).timeline
    return TimelineView(
        message_id=found.message_id, queue=found.queue, state=found.state, items=_moments(found)
    )


def _filter(*, key: str | None, header: str | None, text: str | None) -> MessageFilter:
    name, equals, value = (header or "").partition("=")
    if header is not None and not (name and equals):
        raise InvalidInput("`header` is not a name and its value; write `header=name=value`")
    return MessageFilter(
        key=key,
        header=None if header is None else (name, value),
        text=None if text is None else text.encode(),
    )


async def _counts(services: Services, queue: QueueRef) -> StateCountsView:
    counts = await services.broker.count_messages(queue)
    same = {field.name: getattr(counts, field.name) for field in fields(counts)}
    return StateCountsView(**same, queued=await _count_queued(services, queue))


async def _count_queued(services: Services, queue: QueueRef) -> int | None:
    """The number of queued messages; None while PostgreSQL is away, because other states need only Redis."""
    if services.operations is None:
        return None
    try:
        return await services.operations.store.count_queued_messages(queue)
    except ControlUnavailable:
        return None


async def _list_queued(
    services: Services,
    queue: QueueRef,
    counts: StateCountsView,
    *,
    match: MessageFilter,
    cursor: str | None,
    limit: int,
) -> MessageListView:
    if match != MessageFilter():
        raise InvalidInput("queued messages cannot be searched; leave out `key`, `header` and `text`")
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise InvalidInput(f"`{cursor:.40}` is not a cursor of queued messages; begin without one")
    store = present(services.operations, "the operation queue").store
    page = await store.unfinished_pushes(queue, before=None if cursor is None else int(cursor), limit=limit)
    return MessageListView(
        state=ShownState.QUEUED,
        counts=counts,
        items=[],
        operations=[operation_view(row) for row in page.operations],
        scanned=len(page.operations),
        next_cursor=None if page.next_before is None else str(page.next_before),
    )


def _message_view(found: FoundMessage, *, trace_url: str | None) -> MessageView:
    lineage, trace_id = found.lineage, found.trace_id
    return MessageView(
        message_id=found.message_id,
        queue=found.queue,
        state=found.state,
        items=_moments(found.timeline),
        message=None if found.detail is None else _waiting_view(found.detail),
        life=None if found.life is None else life_view(found.life),
        attempts=[
            AttemptView(**{name: row[name] for name in AttemptView.model_fields})
            for row in found.timeline.attempts
        ],
        result=None,
        progress=None,
        operation_id=found.operation_id,
        see=found.see,
        trace_id=trace_id,
        trace_url=trace_url.replace("{trace_id}", trace_id) if trace_url and trace_id else None,
        parent=None if lineage.parent is None else _relative_view(lineage.parent),
        children=[_relative_view(child) for child in lineage.children],
        more_children=lineage.more_children,
    )


def _relative_view(relative: Relative) -> RelativeView:
    return RelativeView(**{name: getattr(relative, name) for name in RelativeView.model_fields})


def _moments(timeline: Timeline) -> list[MomentView]:
    return [
        MomentView(at_ms=moment.at_ms, what=moment.what, details=moment.details)
        for moment in timeline.moments
    ]


def _waiting_view(detail: MessageDetail) -> WaitingMessageView:
    """Everything but the payload, which goes into the answer byte for byte."""
    own = {"payload", "payload_base64", "payload_bytes", "headers", "held"}
    held = detail.held
    return WaitingMessageView(
        **{name: getattr(detail, name) for name in set(WaitingMessageView.model_fields) - own},
        payload=None,
        payload_base64=None,
        payload_bytes=len(detail.payload),
        headers=dict(detail.headers),
        held=None if held is None else LeaseHolderView(consumer=held.consumer, until_ms=held.until_ms),
    )
