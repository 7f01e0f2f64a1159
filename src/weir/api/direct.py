"""Executing at once: the plain implementation of the seam, straight to the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from weir.broker.broker import Broker
from weir.errors import WeirError
from weir.model.exchange import (
    PushAnswer,
    PushItem,
    Refused,
    SettleAnswer,
    Settled,
    SettleItem,
    Verb,
    push_answer,
)
from weir.model.message import Failure, NewMessage, Settlement
from weir.model.names import QueueRef


class DirectPusher:
    """Puts every message into its queue now: one broker call a queue, order kept."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        first = items[0].queue
        if all(item.queue is first for item in items):
            return await self._one_queue(first, [item.message for item in items])
        groups: dict[QueueRef, list[int]] = {}
        for index, item in enumerate(items):
            groups.setdefault(item.queue, []).append(index)
        answered = await asyncio.gather(
            *(self._one_queue(queue, [items[i].message for i in group]) for queue, group in groups.items())
        )
        answers: dict[int, PushAnswer] = {}
        for group, group_answers in zip(groups.values(), answered, strict=True):
            answers.update(zip(group, group_answers, strict=True))
        return [answers[index] for index in range(len(items))]

    async def _one_queue(self, queue: QueueRef, messages: list[NewMessage]) -> list[PushAnswer]:
        try:
            enqueued = await self._broker.enqueue(queue, messages)
        except WeirError as error:
            return [Refused(error=error)] * len(messages)
        return [push_answer(queue, one) for one in enqueued]


class DirectSettler:
    """Settles every lease now: one broker call a verb."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def settle(self, items: Sequence[SettleItem]) -> list[SettleAnswer]:
        answers: dict[int, SettleAnswer] = {}
        for verb in Verb:
            indexes = [index for index, item in enumerate(items) if item.verb is verb]
            if indexes:
                done = await self._one_verb(verb, [items[index] for index in indexes])
                answers.update(zip(indexes, done, strict=True))
        return [answers[index] for index in range(len(items))]

    async def _one_verb(self, verb: Verb, items: list[SettleItem]) -> list[SettleAnswer]:
        try:
            return [Settled(outcome=outcome) for outcome in await self._call(verb, items)]
        except WeirError as error:
            return [Refused(error=error)] * len(items)

    async def _call(self, verb: Verb, items: list[SettleItem]) -> list[Settlement]:
        if verb is Verb.ACK:
            return await self._broker.ack([item.lease for item in items])
        failures = [Failure(lease=item.lease, error=item.error, delay_ms=item.delay_ms) for item in items]
        if verb is Verb.NACK:
            return await self._broker.nack(failures)
        return await self._broker.dead_letter(failures)
