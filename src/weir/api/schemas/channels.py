"""Requests and answers about channels and their consumers."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, Field

from weir.api.schemas.shared import Name, Revised, Schema
from weir.spec.bounds import MAX_CONSUMERS
from weir.spec.ir import ChannelSpec, ConsumerSpec


class ConsumerBody(Schema):
    id: Name = Field(examples=["payment-service"])
    name: Name = Field(examples=["Payment Service"])
    queue: Name = Field(examples=["payments"])


class ChannelBody(Schema):
    name: Name = Field(examples=["Order Events"])
    consumers: Annotated[tuple[ConsumerBody, ...], Field(max_length=MAX_CONSUMERS)] = ()

    def spec(self, channel_id: str) -> ChannelSpec:
        consumers = tuple(ConsumerSpec(**one.model_dump()) for one in self.consumers)
        return ChannelSpec(id=channel_id, name=self.name, consumers=consumers)


class ChannelView(Revised):
    changed_by: ClassVar[type[BaseModel]] = ChannelBody

    id: str
    name: str
    consumers: list[ConsumerBody]


class ChannelList(BaseModel):
    items: list[ChannelView]


class NewSecret(BaseModel):
    token: str = Field(description="Shown this once.")


def channel_view(channel: ChannelSpec) -> ChannelView:
    consumers = [ConsumerBody(id=one.id, name=one.name, queue=one.queue) for one in channel.consumers]
    return ChannelView(id=channel.id, name=channel.name, consumers=consumers)
