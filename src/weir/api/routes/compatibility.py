"""The sources' routes outside `/api/v1`. Paths, parameters and answers are exactly the sources'."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Header, Query, Request, Response, status

from weir.api.auth import Access, App, Caller, Scope, authenticate, chosen_access
from weir.api.hot import HotRoute
from weir.api.idempotency import KEY_HEADER, header_key
from weir.api.previews import preview_of
from weir.api.routes import hooks
from weir.api.routes.channels import channels_of
from weir.api.routes.deadletters import (
    Before,
    Page,
    dead_letters_of,
    json_response,
    next_page,
    position,
)
from weir.api.schemas.compatibility import (
    AdminQueue,
    AdminQueues,
    DeadJobList,
    DeadJobView,
    DeadLetterPreview,
    DeadLetterPreviews,
    Deleted,
    DLQStatus,
    Done,
    Preview,
    Published,
    PublishedTo,
    Replayed,
    Requeued,
    job_document,
    status_document,
)
from weir.api.services import Services
from weir.api.wire import note_holder
from weir.channels.channels import CHANNEL_HEADER, CONSUMER_HEADER, Channel, ChannelConsumer
from weir.channels.publish import Publication, publish
from weir.control.principals import Principal, Role
from weir.deadletters.bulk_actions import BulkAction, BulkActionKind, NewBulkAction
from weir.deadletters.dead_letter import DeadLetter
from weir.deadletters.filters import Filter
from weir.deadletters.summary import ConsumerStatus, read_summary
from weir.errors import Unavailable, WeirError
from weir.exchange.seam import Pushed, Queued, Refused
from weir.model.beside_loop import beside_loop
from weir.model.limits import MAX_NAME_BYTES
from weir.model.names import EnvironmentRef

_dead = APIRouter(tags=["dead letters"])
_admin = APIRouter(prefix="/admin/queues", tags=["admin"])
_channel = APIRouter(prefix="/channel/{channelId}", tags=["channels"])
_hook = APIRouter(prefix="/hook/{organization}/{project}/{environment}/{name}", tags=["webhooks"])
ROUTERS = (_dead, _admin, _channel, _hook)

Tenant = Annotated[
    str | None,
    Query(max_length=MAX_NAME_BYTES, description="The environment, for tokens that reach several."),
]
ChannelToken = Annotated[str | None, Header(alias=CHANNEL_HEADER, max_length=256)]
ConsumerToken = Annotated[str | None, Header(alias=CONSUMER_HEADER, max_length=256)]
PATIENCE_S = 5.0
"""How long a request about all dead messages waits for the end of its bulk action."""
_STATUS_BYTES = 180
"""What a consumer takes in the status."""
LOOK_S = 0.05
"""The pause between two looks at that bulk action."""

ROUTES = (HotRoute(path="/hook/{name}", endpoints={"POST": hooks.receive, "OPTIONS": hooks.handshake}),)
_hook.options("", include_in_schema=False)(hooks.handshake_long)
_hook.post("", operation_id="receive_webhook", status_code=202)(hooks.receive_long)


def scoped(role: Role) -> Callable[..., Awaitable[Access]]:
    """An authenticated caller and the environment that `tenant_id` or the headers choose."""

    async def dependency(
        services: App,
        caller: Caller,
        tenant_id: Tenant = None,
        weir_organization: Scope = None,
        weir_project: Scope = None,
        weir_environment: Scope = None,
    ) -> Access:
        return chosen_access(
            services,
            caller,
            role=role,
            organization=weir_organization,
            project=weir_project,
            environment=weir_environment,
            named=tenant_id,
        )

    return dependency


Reader = Annotated[Access, Depends(scoped(Role.READ))]
Writer = Annotated[Access, Depends(scoped(Role.WRITE))]
Admin = Annotated[Access, Depends(scoped(Role.ADMIN))]


async def channel_of(
    channelId: str,  # noqa: N803
    request: Request,
    services: App,
    x_broker_channel_token: ChannelToken = None,
) -> Channel:
    channel = await channels_of(services).channel_of_token(x_broker_channel_token, channel_id=channelId)
    note_holder(request.scope, channel.environment.holder)
    return channel


async def consumer_of(
    channelId: str,  # noqa: N803
    consumerId: str,  # noqa: N803
    request: Request,
    services: App,
    x_broker_channel_token: ChannelToken = None,
    x_broker_consumer_token: ConsumerToken = None,
) -> ChannelConsumer:
    consumer = await channels_of(services).consumer_of_tokens(
        channelId, consumerId, channel_token=x_broker_channel_token, consumer_token=x_broker_consumer_token
    )
    note_holder(request.scope, consumer.channel.environment.holder)
    return consumer


Producer = Annotated[Channel, Depends(channel_of)]
Owner = Annotated[ChannelConsumer, Depends(consumer_of)]
_BELOW = "/consumer/{consumerId}"


@_dead.get("/dlq-status", operation_id="dlq_status", response_model=DLQStatus)
async def show_dlq_status(
    request: Request, services: App, x_broker_channel_token: ChannelToken = None
) -> Response:
    """The exact number of dead messages per consumer, from the summary alone.

    With a bearer token: everything in its scope. With a channel's token: that channel.
    """
    if "authorization" not in request.headers and x_broker_channel_token is not None:
        rows = await _of_channel(services, x_broker_channel_token)
    else:
        principal = await authenticate(request.headers, services.authenticator)
        rows = await read_summary(dead_letters_of(services).database, principal)
    # Polled by everyone, so the rows go straight to JSON; `DLQStatus` describes them.
    body = await beside_loop(_status_body, len(rows) * _STATUS_BYTES, rows)
    return Response(body, media_type="application/json")


def _status_body(rows: list[ConsumerStatus]) -> bytes:
    return orjson.dumps({"consumers": [status_document(row) for row in rows]})


async def _of_channel(services: Services, token: str) -> list[ConsumerStatus]:
    channel = await channels_of(services).channel_of_token(token)
    owner = channel.environment
    principal = Principal(
        token_id=channel.id,
        role=Role.READ,
        organization=owner.organization,
        project=owner.project,
        environment=owner.environment,
    )
    rows = await read_summary(dead_letters_of(services).database, principal)
    return [row for row in rows if row.channel_id == channel.id]


@_admin.get("", operation_id="admin_queues")
async def list_queues(access: Reader, services: App) -> AdminQueues:
    """Every queue of the environment: waiting, in flight, age, throughput and dead letters."""
    states = await services.broker.states(access.environment)
    rates = await _rates(services, access.environment)
    dead = await dead_letters_of(services).letters.counts(access.environment)
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


@_admin.get("/{name}/dlq", operation_id="admin_dead_letters")
async def list_dead_letters(
    name: str, access: Reader, services: App, before: Before = None, limit: Page = 50
) -> DeadLetterPreviews:
    """The dead letters of a queue, the newest first."""
    queue = access.environment.queue(name)
    found = await dead_letters_of(services).letters.newest(queue, before=position(before), limit=limit)
    return DeadLetterPreviews(
        dead_letters=[_preview(letter) for letter in found.letters], next_before=next_page(found)
    )


@_admin.get("/{name}/dlq/{letter_id}", operation_id="admin_dead_letter", response_model=DeadJobView)
async def show_dead_letter(name: str, letter_id: str, access: Reader, services: App) -> Response:
    """One dead letter with its payload and what became of it."""
    letters = dead_letters_of(services).letters
    letter = await letters.find(access.environment.queue(name), letter_id)
    fate = await letters.fate_of_replay(letter)
    return json_response(job_document(letter, redrive_result=fate))


@_admin.post("/{name}/dlq/{letter_id}/replay", operation_id="admin_replay")
async def replay(name: str, letter_id: str, access: Writer, services: App) -> Replayed:
    """Send a dead letter back to its queue."""
    queue = access.environment.queue(name)
    new_id = await dead_letters_of(services).letters.redrive(queue, letter_id, by=access.actor)
    return Replayed(new_message_id=new_id)


@_admin.delete("/{name}/dlq/{letter_id}", operation_id="admin_delete_dead_letter")
async def delete(name: str, letter_id: str, access: Admin, services: App) -> Done:
    """Delete a dead letter, even if it had attempts left."""
    queue = access.environment.queue(name)
    await dead_letters_of(services).letters.delete(queue, letter_id, by=access.actor, exhausted_only=False)
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


@_channel.post(
    "/publish",
    operation_id="publish",
    status_code=status.HTTP_202_ACCEPTED,
    openapi_extra={"requestBody": {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def publish_message(
    request: Request,
    channel: Producer,
    services: App,
    idempotency_key: Annotated[str | None, Header(max_length=256)] = None,
    weir_key: Annotated[str | None, Header(max_length=MAX_NAME_BYTES)] = None,
) -> Published:
    """Put the body into every consumer's queue. Sent again with the same `Idempotency-Key`, it reaches only
    the consumers that did not get it before."""
    publication = _publication(request, await request.body(), weir_key)
    received = await publish(channels_of(services), services.pusher, channel, publication)
    answer = Published(
        idempotency_key=publication.idempotency_key,
        consumers=[_published(one.consumer, one.answer) for one in received],
    )
    refused = [one for one in answer.consumers if one.status == "refused"]
    if refused:
        raise Unavailable(
            f"{len(refused)} of {len(received)} consumers did not get it; send it again with the same key",
            retry_after_s=1,
            **answer.model_dump(),
        )
    return answer


def _publication(request: Request, payload: bytes, key: str | None) -> Publication:
    content_type = request.headers.get("content-type")
    headers = {} if content_type is None else {"content-type": content_type}
    if KEY_HEADER not in request.headers:
        return Publication(payload=payload, headers=headers, key=key)
    chosen = header_key(request.headers)
    return Publication(payload=payload, headers=headers, key=key, idempotency_key=chosen)


def _published(consumer: ChannelConsumer, answer: Any) -> PublishedTo:
    match answer:
        case Pushed():
            word = "duplicate" if answer.duplicate else "accepted"
            return PublishedTo(consumerId=consumer.id, status=word, messageId=answer.message_id)
        case Queued():
            return PublishedTo(
                consumerId=consumer.id,
                status="queued",
                messageId=answer.message_id,
                operationId=answer.operation_id,
            )
        case Refused():
            return PublishedTo(
                consumerId=consumer.id, status="refused", messageId=None, error=answer.error.message
            )
    raise TypeError(answer)


@_channel.get(f"{_BELOW}/dlq", operation_id="list_dead_jobs", response_model=DeadJobList)
async def list_dead_jobs(owner: Owner, services: App, before: Before = None, limit: Page = 50) -> Response:
    """The dead messages of a consumer, the newest first."""
    found = await dead_letters_of(services).letters.newest(owner.queue, before=position(before), limit=limit)
    jobs = [job_document(letter) for letter in found.letters]
    return json_response({"letters": jobs, "next_before": next_page(found)})


@_channel.post(f"{_BELOW}/dlq", operation_id="requeue_dead_jobs")
async def requeue_all(owner: Owner, services: App, response: Response) -> Requeued:
    """Requeue all dead messages of a consumer: 200 when it is done, 202 if the bulk action goes on."""
    action = await _run_or_leave(services, owner, BulkActionKind.REDRIVE, response)
    return Requeued(requeued=action.done, done=action.state.over, task=action.id)


@_channel.delete(f"{_BELOW}/dlq", operation_id="purge_dead_jobs")
async def purge_all(owner: Owner, services: App, response: Response) -> Deleted:
    """Delete a consumer's dead messages that used up their attempts: 200 when it is done, else 202."""
    action = await _run_or_leave(services, owner, BulkActionKind.PURGE, response)
    return Deleted(deleted=action.done, done=action.state.over, task=action.id)


@_channel.get(_BELOW + "/job/{jobId}", operation_id="show_dead_job", response_model=DeadJobView)
async def show_dead_job(jobId: str, owner: Owner, services: App) -> Response:  # noqa: N803
    """One dead message of a consumer."""
    letters = dead_letters_of(services).letters
    letter = await letters.find(owner.queue, jobId)
    fate = await letters.fate_of_replay(letter)
    return json_response(job_document(letter, redrive_result=fate))


@_channel.post(_BELOW + "/job/{jobId}/requeue-dead-job", operation_id="requeue_dead_job")
async def requeue_one(jobId: str, owner: Owner, services: App) -> Replayed:  # noqa: N803
    """Requeue one dead message of a consumer."""
    new_id = await dead_letters_of(services).letters.redrive(owner.queue, jobId, by=owner.actor)
    return Replayed(new_message_id=new_id)


@_channel.delete(_BELOW + "/job/{jobId}", operation_id="delete_dead_job")
async def delete_one(jobId: str, owner: Owner, services: App) -> Done:  # noqa: N803
    """Delete one dead message of a consumer that used up its attempts."""
    await dead_letters_of(services).letters.delete(owner.queue, jobId, by=owner.actor)
    return Done()


async def _run_or_leave(
    services: Services, owner: ChannelConsumer, kind: BulkActionKind, response: Response
) -> BulkAction:
    """Begin a bulk action on all dead letters of a consumer, wait a little for its end, then let it run."""
    actions = dead_letters_of(services).bulk_actions
    environment = owner.channel.environment
    new = NewBulkAction(kind=kind, filter=Filter(queue=owner.queue.queue))
    action = await actions.create(environment, new, by=owner.actor)
    give_up = asyncio.get_running_loop().time() + PATIENCE_S
    while not action.state.over and asyncio.get_running_loop().time() < give_up:
        await asyncio.sleep(LOOK_S)
        action = await actions.find(environment, action.id)
    if not action.state.over:
        response.status_code = status.HTTP_202_ACCEPTED
        response.headers["location"] = f"/api/v1/dlq/tasks/{action.id}"
    return action
