"""Channels of an environment and their tokens; the sources' routes of a channel are in `compatibility`."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from fastapi import APIRouter, status

from weir.api.auth import Access, Admin, App, Reader
from weir.api.revisions import IfMatch, unchanged
from weir.api.schemas.channels import ChannelBody, ChannelList, ChannelView, NewSecret, channel_view
from weir.api.services import Services, present
from weir.channels.channels import Channels

router = APIRouter(tags=["channels"])


def channels_of(services: Services) -> Channels:
    return present(services.channels, "channels")


@router.get("/api/v1/channels", operation_id="list_channels")
async def list_channels(access: Reader, services: App) -> ChannelList:
    """The channels of the environment and their consumers."""
    found = await channels_of(services).of(access.environment)
    return ChannelList(items=[channel_view(channel) for channel in found])


@router.put("/api/v1/channels/{channel_id}", operation_id="put_channel")
async def put_channel(
    channel_id: str,
    body: ChannelBody,
    access: Admin,
    services: App,
    if_match: IfMatch = None,
) -> ChannelView:
    """Create a channel, or change its name and consumers; consumers keep their tokens and dead letters."""
    spec = body.spec(channel_id)
    async with _unchanged(services, access, channel_id, if_match):
        await channels_of(services).put(access.environment, spec, by=access.actor)
    return channel_view(spec)


@router.delete(
    "/api/v1/channels/{channel_id}",
    operation_id="remove_channel",
    status_code=status.HTTP_204_NO_CONTENT,
)
async def remove_channel(channel_id: str, access: Admin, services: App, if_match: IfMatch = None) -> None:
    """Remove a channel; its consumers' queues and dead letters stay."""
    async with _unchanged(services, access, channel_id, if_match):
        await channels_of(services).remove(access.environment, channel_id, by=access.actor)


def _unchanged(
    services: Services, access: Access, channel_id: str, if_match: str | None
) -> AbstractAsyncContextManager[None]:
    async def read() -> ChannelView | None:
        found = await channels_of(services).of(access.environment)
        return next((channel_view(one) for one in found if one.id == channel_id), None)

    return unchanged(services, access, if_match, what=f"channel `{channel_id}`", read=read)


@router.post("/api/v1/channels/{channel_id}/tokens", operation_id="new_channel_token")
async def make_channel_token(channel_id: str, access: Admin, services: App) -> NewSecret:
    """Make a fresh `X-Broker-Channel-Token`; the old one ends at once."""
    token = await channels_of(services).new_channel_token(access.environment, channel_id, by=access.actor)
    return NewSecret(token=token)


@router.post(
    "/api/v1/channels/{channel_id}/consumers/{consumer_id}/tokens",
    operation_id="new_consumer_token",
)
async def make_consumer_token(
    channel_id: str,
    consumer_id: str,
    access: Admin,
    services: App,
) -> NewSecret:
    """Make a fresh `X-Broker-Consumer-Token`; the old one ends at once."""
    token = await channels_of(services).new_consumer_token(
        access.environment, channel_id, consumer_id, by=access.actor
    )
    return NewSecret(token=token)
