"""Channels: published to, and their consumers' dead messages requeued and deleted with their tokens."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response, status
from pydantic import BaseModel

from weir.api.auth import Admin, App, Reader
from weir.api.dead_letter_schemas import (
    ChannelBody,
    ChannelList,
    ChannelView,
    ConsumerBody,
    DeadJobList,
    DeadLetterView,
    Deleted,
    NewSecret,
    Requeued,
    letter_view,
)
from weir.api.idempotency import header_key
from weir.api.responses import problems
from weir.api.routes.deadletters import Before, ChannelToken, Page, next_page, position, room_of
from weir.api.routes.deadletters_admin import Done, Replayed
from weir.api.services import Services
from weir.api.wire import note_holder
from weir.deadletters.channels import Channel, ChannelConsumer
from weir.deadletters.filters import Filter
from weir.deadletters.publish import Publication, publish
from weir.deadletters.tasks import BulkAction, BulkActionKind, NewBulkAction
from weir.errors import Unavailable
from weir.model.exchange import Pushed, Queued, Refused
from weir.spec.ir import ChannelSpec

router = APIRouter(tags=["channels"])

ConsumerToken = Annotated[str | None, Header(alias="X-Broker-Consumer-Token", max_length=256)]
PATIENCE_S = 5.0
LOOK_S = 0.05


class PublishedTo(BaseModel):
    consumerId: str  # noqa: N815
    status: str
    messageId: str | None  # noqa: N815
    operationId: str | None = None  # noqa: N815
    error: str | None = None


class Published(BaseModel):
    idempotency_key: str
    consumers: list[PublishedTo]


async def channel_of(
    channelId: str,  # noqa: N803
    request: Request,
    services: App,
    x_broker_channel_token: ChannelToken = None,
) -> Channel:
    channel = await room_of(services).channels.channel_by_token(channelId, x_broker_channel_token)
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
    consumer = await room_of(services).channels.consumer_by_tokens(
        channelId, consumerId, channel_token=x_broker_channel_token, consumer_token=x_broker_consumer_token
    )
    note_holder(request.scope, consumer.channel.environment.holder)
    return consumer


Producer = Annotated[Channel, Depends(channel_of)]
Owner = Annotated[ChannelConsumer, Depends(consumer_of)]
_BELOW = "/channel/{channelId}/consumer/{consumerId}"


@router.post(
    "/channel/{channelId}/publish",
    operation_id="publish",
    status_code=status.HTTP_202_ACCEPTED,
    responses=problems(),
    openapi_extra={"requestBody": {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def publish_message(
    request: Request,
    channel: Producer,
    services: App,
    idempotency_key: Annotated[str | None, Header(max_length=256)] = None,
    weir_key: Annotated[str | None, Header(max_length=255)] = None,
) -> Published:
    """Put the body into every consumer's queue. The same `Idempotency-Key` again reaches only those that
    did not get it before."""
    publication = _publication(request, await request.body(), weir_key)
    received = await publish(room_of(services).channels, services.pusher, channel, publication)
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
    chosen = header_key(request.headers)
    if chosen is None:
        return Publication(payload=payload, headers=headers, key=key)
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


@router.get(f"{_BELOW}/dlq", operation_id="list_dead_jobs", responses=problems())
async def dead_jobs(owner: Owner, services: App, before: Before = None, limit: Page = 50) -> DeadJobList:
    """The dead messages of a consumer, the newest first."""
    found = await room_of(services).letters.newest(owner.queue, before=position(before), limit=limit)
    return DeadJobList(letters=[letter_view(letter) for letter in found], next_before=next_page(found, limit))


@router.post(f"{_BELOW}/dlq", operation_id="requeue_dead_jobs", responses=problems())
async def requeue_all(owner: Owner, services: App, response: Response) -> Requeued:
    """Requeue all dead messages of a consumer: 200 when it is done, 202 when it goes on as a task."""
    task = await _finished(services, owner, BulkActionKind.REDRIVE, response)
    return Requeued(requeued=task.done, done=task.state.over, task=task.id)


@router.delete(f"{_BELOW}/dlq", operation_id="purge_dead_jobs", responses=problems())
async def purge_all(owner: Owner, services: App, response: Response) -> Deleted:
    """Delete all dead messages of a consumer that used up their attempts: 200 when it is done, else 202."""
    task = await _finished(services, owner, BulkActionKind.PURGE, response)
    return Deleted(deleted=task.done, done=task.state.over, task=task.id)


@router.get(_BELOW + "/job/{jobId}", operation_id="show_dead_job", responses=problems())
async def dead_job(jobId: str, owner: Owner, services: App) -> DeadLetterView:  # noqa: N803
    """One dead message of a consumer."""
    letters = room_of(services).letters
    letter = await letters.find(owner.queue, jobId)
    return letter_view(letter, replay_result=await letters.fate_of_replay(letter))


@router.post(
    _BELOW + "/job/{jobId}/requeue-dead-job", operation_id="requeue_dead_job", responses=problems(409)
)
async def requeue_one(jobId: str, owner: Owner, services: App) -> Replayed:  # noqa: N803
    """Requeue one dead message of a consumer."""
    new_id = await room_of(services).letters.replay(owner.queue, jobId, by=owner.actor)
    return Replayed(new_message_id=new_id)


@router.delete(_BELOW + "/job/{jobId}", operation_id="delete_dead_job", responses=problems(409))
async def delete_one(jobId: str, owner: Owner, services: App) -> Done:  # noqa: N803
    """Delete one dead message of a consumer that used up its attempts."""
    await room_of(services).letters.delete(owner.queue, jobId, by=owner.actor)
    return Done()


async def _finished(
    services: Services, owner: ChannelConsumer, kind: BulkActionKind, response: Response
) -> BulkAction:
    """Begin a task about everything of a consumer and wait a little for its end."""
    room = room_of(services)
    environment = owner.channel.environment
    new = NewBulkAction(kind=kind, filter=Filter(queue=owner.queue.queue))
    task = await room.tasks.create(environment, new, by=owner.actor)
    give_up = asyncio.get_running_loop().time() + PATIENCE_S
    while not task.state.over and asyncio.get_running_loop().time() < give_up:
        await asyncio.sleep(LOOK_S)
        task = await room.tasks.find(environment, task.id)
    if not task.state.over:
        response.status_code = status.HTTP_202_ACCEPTED
        response.headers["location"] = f"/api/v1/dlq/tasks/{task.id}"
    return task


@router.get("/api/v1/channels", operation_id="list_channels", responses=problems())
async def channels(access: Reader, services: App) -> ChannelList:
    """The channels of the environment and their consumers."""
    found = await room_of(services).channels.of(access.environment)
    return ChannelList(items=[_channel_view(channel) for channel in found])


@router.put("/api/v1/channels/{channelId}", operation_id="put_channel", responses=problems(409))
async def put_channel(
    channelId: str,  # noqa: N803
    body: ChannelBody,
    access: Admin,
    services: App,
) -> ChannelView:
    """Create a channel, or change its name and consumers; consumers keep their tokens and their dead."""
    spec = body.spec(channelId)
    await room_of(services).channels.put(access.environment, spec, by=access.actor)
    return _channel_view(spec)


@router.delete(
    "/api/v1/channels/{channelId}",
    operation_id="remove_channel",
    status_code=status.HTTP_204_NO_CONTENT,
    responses=problems(),
)
async def remove_channel(channelId: str, access: Admin, services: App) -> None:  # noqa: N803
    """Remove a channel; its consumers' queues and dead letters stay."""
    await room_of(services).channels.remove(access.environment, channelId, by=access.actor)


@router.post("/api/v1/channels/{channelId}/token", operation_id="new_channel_token", responses=problems())
async def new_channel_token(channelId: str, access: Admin, services: App) -> NewSecret:  # noqa: N803
    """A fresh `X-Broker-Channel-Token`; the old one ends at once."""
    token = await room_of(services).channels.new_channel_token(access.environment, channelId, by=access.actor)
    return NewSecret(token=token)


@router.post(
    "/api/v1/channels/{channelId}/consumers/{consumerId}/token",
    operation_id="new_consumer_token",
    responses=problems(),
)
async def new_consumer_token(
    channelId: str,  # noqa: N803
    consumerId: str,  # noqa: N803
    access: Admin,
    services: App,
) -> NewSecret:
    """A fresh `X-Broker-Consumer-Token`; the old one ends at once."""
    token = await room_of(services).channels.new_consumer_token(
        access.environment, channelId, consumerId, by=access.actor
    )
    return NewSecret(token=token)


def _channel_view(channel: ChannelSpec) -> ChannelView:
    return ChannelView(
        id=channel.id,
        name=channel.name,
        consumers=[ConsumerBody(id=one.id, name=one.name, queue=one.queue) for one in channel.consumers],
    )
