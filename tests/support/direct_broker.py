"""A broker that enqueues as a client in direct mode does: the promises of brokers are tested on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from weir.broker.blocking import BlockingBroker
from weir.broker.broker import Entry, GateRule, Source
from weir.broker.layout import pack_arrival
from weir.client.blocking_connections import run_blocking
from weir.client.direct_opening import DirectOptions, OpenedRedis
from weir.client.direct_push import Answer, Undecided, put
from weir.errors import KeyReused, NotFound, QueueFull
from weir.model.ids import MessageId
from weir.model.message import Delivery, Enqueue, Enqueued, NewMessage, check_messages
from weir.model.names import EnvironmentRef, QueueRef

OPTIONS = DirectOptions(
    environment=EnvironmentRef(organization="o", project="p", environment="e"),
    token_id="t",
    shards=4,
    epoch=None,
    redis_user=None,
    max_payload_bytes=1 << 20,
    max_depth=64,
)
_REFUSALS = {KeyReused.code: Enqueue.KEY_REUSED, QueueFull.code: Enqueue.FULL}


class DirectBroker(BlockingBroker):
    """Enqueues messages that obey gates as a client does: as a named call, over sockets that block."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._opened = OpenedRedis(OPTIONS, self)

    async def dequeue(
        self,
        source: Source,
        *,
        consumer: str,
        limit: int = 1,
        lease_ms: int | None = None,
        wait_ms: int = 0,
    ) -> list[Delivery]:
        """Run in a thread if it waits, because it blocks while it waits."""
        taking = super().dequeue(source, consumer=consumer, limit=limit, lease_ms=lease_ms, wait_ms=wait_ms)
        return await (asyncio.to_thread(run_blocking, taking) if wait_ms else taking)

    async def enqueue(
        self, queue: QueueRef, messages: Sequence[NewMessage], *, entry: Entry = GateRule.OBEY
    ) -> list[Enqueued]:
        if entry is not GateRule.OBEY or not messages:
            return await super().enqueue(queue, messages, entry=entry)
        check_messages(messages)
        parcels = [(message.id, *pack_arrival(message)) for message in messages]
        answers = await put(self._opened, queue, parcels)
        return [_enqueued(message, answer) for message, answer in zip(messages, answers, strict=True)]


def _enqueued(message: NewMessage, answer: Answer) -> Enqueued:
    if isinstance(answer, Undecided):
        return Enqueued(outcome=Enqueue.GATED, message_id=message.id)
    if answer.problem is None:
        return Enqueued(outcome=Enqueue(answer.status), message_id=MessageId(answer.id or ""))
    if answer.problem["status"] == NotFound.status:
        raise NotFound(answer.problem["detail"])
    return Enqueued(outcome=_REFUSALS[answer.problem["code"]], message_id=message.id)
