"""Publishing: one message goes to the queue of every consumer of a channel, once per idempotency key."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weir.channels.channels import Channel, ChannelConsumer, Channels
from weir.exchange.seam import PushAnswer, Pusher, PushItem
from weir.model.ids import new_id
from weir.model.message import NewMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A message for a channel. Without an idempotency key, every try is a publication of its own."""

    payload: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    idempotency_key: str = field(default_factory=new_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerAnswer:
    """The answer of one consumer's queue."""

    consumer: ChannelConsumer
    answer: PushAnswer


async def publish(
    channels: Channels, pusher: Pusher, channel: Channel, publication: Publication
) -> list[ConsumerAnswer]:
    """Push a message to the queue of every consumer. If some refuse, publish again with the same key: only
    the queues that refused get it."""
    consumers = await channels.consumers(channel)
    items = [PushItem(queue=consumer.queue, message=_message(channel, publication)) for consumer in consumers]
    answers: Sequence[PushAnswer] = await pusher.push(items) if items else ()
    return [
        ConsumerAnswer(consumer=consumer, answer=answer)
        for consumer, answer in zip(consumers, answers, strict=True)
    ]


def _message(channel: Channel, publication: Publication) -> NewMessage:
    # The prefix keeps these keys apart from the keys of producers that push to the same queue.
    name = f"{channel.id}\n{publication.idempotency_key}".encode()
    digest = hashlib.blake2b(name, digest_size=16, person=b"weir.publish").hexdigest()
    return NewMessage(
        payload=publication.payload,
        headers={**publication.headers, "weir-channel": channel.id},
        key=publication.key,
        idempotency_key=f"weir-publish/{digest}",
    )
