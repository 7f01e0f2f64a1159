"""Passes work on: puts messages into further queues that know which message they came from."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from weir.deadletters.lineage import LINEAGE
from weir.lineage.children import ChildMessage, Kinship
from weir.model.durations import Duration, to_optional_ms
from weir.model.handling import NoRoom
from weir.model.message import Delivery, Enqueue, Enqueued, NewMessage, headers_fit
from weir.model.message_headers import CHAINED_FROM
from weir.model.names import QueueRef
from weir.model.push_keys import PushKeys
from weir.model.trace_context import trace_headers_of
from weir.workers.outcome import BUSY_DELAY_MS

if TYPE_CHECKING:
    from weir.workers.run_message import Tools

# A push inside a handler waits for room for 2 s. Then its message is given back, and another has the slot.
PUSH_EVERY_S, PUSH_TRIES = 0.2, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainedPushes:
    """Pushes the messages that a command passes on, each of them once however often the command runs."""

    delivery: Delivery
    tools: Tools
    keys: PushKeys
    loop: asyncio.AbstractEventLoop
    thread_id: int
    """The id of the thread in which the loop runs."""

    @classmethod
    def of(cls, delivery: Delivery, tools: Tools) -> ChainedPushes:
        keys = PushKeys(delivery.message_id)
        return cls(
            delivery=delivery,
            tools=tools,
            keys=keys,
            loop=asyncio.get_running_loop(),
            thread_id=threading.get_ident(),
        )

    async def push(
        self,
        queue: str,
        payload: Any,
        *,
        key: str | None,
        headers: Mapping[str, str] | None,
        priority: int | None,
        delay: Duration | None,
    ) -> str:
        """Push a message; returns its id. NoRoom if the queue stays full, NotFound if it is unknown."""
        own = {**trace_headers_of(self.delivery.headers), **(headers or {})}
        if not isinstance(payload, bytes):
            payload = orjson.dumps(payload)
            own.setdefault("content-type", "application/json")
        message = NewMessage(
            payload=payload,
            headers=chained_headers(own, self.delivery.message_id),
            key=key,
            priority=priority,
            delay_ms=to_optional_ms(delay),
            idempotency_key=self.keys.make(queue, payload),
        )
        target = self.delivery.queue.scope.queue(queue)
        answer = await chain(target, message, self.delivery, self.tools)
        for _ in range(PUSH_TRIES):
            if answer.outcome not in (Enqueue.FULL, Enqueue.GATED):
                break
            await asyncio.sleep(PUSH_EVERY_S)
            answer = await chain(target, message, self.delivery, self.tools)
        if answer.outcome in (Enqueue.FULL, Enqueue.GATED):
            raise NoRoom(f"queue `{queue}` takes nothing now", delay=BUSY_DELAY_MS / 1_000)
        return answer.message_id


async def chain(target: QueueRef, message: NewMessage, parent: Delivery, tools: Tools) -> Enqueued:
    """Put a message into a queue, and record `parent` as the message that it came from."""
    if tools.tracer is None:
        (answer,) = await tools.broker.enqueue(target, [message])
    else:
        with tools.tracer.forwarding(target, [message]) as sent:
            (answer,) = await tools.broker.enqueue(target, sent.messages)
    if answer.outcome not in (Enqueue.FULL, Enqueue.GATED):
        _record_child(target, answer, parent, tools)
    return answer


def chained_headers(headers: Mapping[str, str], message_id: str) -> Mapping[str, str]:
    """The headers for the next queue: with the id of this message, and without the marks of a replay."""
    own = {name: value for name, value in headers.items() if name not in LINEAGE}
    told = {**own, CHAINED_FROM: message_id}
    # If the id does not fit into the headers it is left out: the message matters more.
    return told if headers_fit(told) else own


def _record_child(target: QueueRef, answer: Enqueued, parent: Delivery, tools: Tools) -> None:
    if tools.children is not None:
        tools.children.record(
            ChildMessage(
                queue=target,
                message_id=answer.message_id,
                parent_id=parent.message_id,
                kind=Kinship.CHAINED,
                at_ms=tools.clock.now_ms(),
            )
        )
