"""Pushes of clients in direct mode, with the promises that the API keeps.

Each push is a named call. A gated push goes through the API, behind the operations that hold its gate. A push
that Redis does not answer goes through the API too, with the name of its call, so that it takes effect once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import asdict

from weir.broker.blocking import BlockingBroker
from weir.client.bulk import BulkPush
from weir.client.direct_opening import DirectRedis, OpenedRedis
from weir.client.direct_values import (
    Parcel,
    ResumedMessage,
    accepted_results,
    is_accepted,
    is_passing,
    pack_message,
    read_letters,
)
from weir.client.errors import to_api_error
from weir.client.options import ClientOptions
from weir.client.retry import pause_s, worth_retrying
from weir.client.telemetry import Silent
from weir.client.transport import Transport
from weir.client.values import OutgoingMessage, PushResult
from weir.errors import WeirError
from weir.exchange.attempt import RequestCoalescer
from weir.model.ids import NamedCall
from weir.model.limits import MAX_BATCH
from weir.model.names import QueueRef
from weir.model.problem_documents import problem
from weir.operations.gates import is_unknown

MAX_CALL_BYTES = 1 << 20
"""The most bytes of bodies in one call, so that no call holds Redis for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Redis neither took nor refused a message, or nobody knows whether it did: the API decides."""

    call: NamedCall | None = None
    """The call of unknown outcome that carried the message, in a slot as this client's token names it."""
    place: int = 0
    """The index of the message in that call."""


GATED = Undecided()
Answer: TypeAlias = PushResult | Undecided
Item: TypeAlias = tuple[QueueRef, Parcel]


class DirectPushes:
    """Puts messages into the queues of one environment.

    In an event loop concurrent pushes share calls, as pushes over HTTP share requests.
    """

    def __init__(self, redis: DirectRedis, options: ClientOptions, transport: Transport) -> None:
        self._redis = redis
        self._options = options
        self._transport = transport
        self._shared: RequestCoalescer[Item, Answer] = RequestCoalescer(self._put_all, at_once=1)

    async def push(self, message: OutgoingMessage) -> PushResult:
        """Push one message; the result may be a refusal. It is retried as a push over HTTP would be."""
        attempt = 1
        while True:
            result = await self._push_once(message)
            if result.problem is None or attempt == self._options.retry_attempts:
                return result
            if not worth_retrying(int(result.problem["status"]), self._options):
                return result
            asked_s = result.problem.get("retry_after")
            await self._transport.sleep(pause_s(attempt, self._options, asked_s=asked_s))
            attempt += 1

    async def _push_once(self, message: OutgoingMessage) -> PushResult:
        opened = await self._redis.open()
        if opened.is_away:
            return (await self._push_through_api([message]))[0]
        item = _item(opened, message)
        if self._redis.blocking:
            (answer,) = await put(opened, item[0], [item[1]])
        else:
            (answer,) = await self._shared.submit([item])
        if isinstance(answer, PushResult):
            return answer
        return (await self._decide([message], [item], [answer]))[0]

    async def push_many(self, messages: Sequence[OutgoingMessage]) -> list[PushResult]:
        """Push messages in order; returns a result per message."""
        opened = await self._redis.open()
        parts, results = _Parts(opened, messages), _Results()

        def use_wait() -> None:
            results.make()
            parts.prepare()

        while (part := parts.take()) is not None:
            # Asked for each part: a Redis that was away is checked to be the right one before it is used.
            opened = await self._redis.open()
            if opened.is_away:
                results.add(await self._push_through_api(part.messages))
                continue
            if isinstance(opened.broker, BlockingBroker):
                opened.broker.use_wait(use_wait)
            await self._push_part(opened, part, results)
        return results.all()

    async def _push_part(self, opened: OpenedRedis, part: _Part, results: _Results) -> None:
        queue = part.only_queue
        if queue is None:
            answers = await self._put_all(part.items)
        else:
            parcels = [parcel for _, parcel in part.items]
            told = await _send(opened, queue, parcels)
            if is_accepted(parcels, told):
                results.add_later(parcels)
                return
            answers = _read(queue, parcels, told)
        # Undecided messages go through the API now, because the next part must not overtake them.
        results.add(await self._decide(part.messages, part.items, answers))

    async def _put_all(self, items: Sequence[Item]) -> list[Answer]:
        """Put items into their queues with one call per queue, one call after the other."""
        opened = await self._redis.open()
        if (only := _only_queue(items)) is not None:
            return await put(opened, only, [parcel for _, parcel in items])
        places: dict[QueueRef, list[int]] = {}
        for at, (queue, _) in enumerate(items):
            places.setdefault(queue, []).append(at)
        answers: dict[int, Answer] = {}
        for queue, group in places.items():
            done = await put(opened, queue, [items[at][1] for at in group])
            answers.update(zip(group, done, strict=True))
        return [answers[at] for at in range(len(items))]

    async def _decide(
        self, messages: Sequence[OutgoingMessage], items: Sequence[Item], answers: Sequence[Answer]
    ) -> list[PushResult]:
        """The results of an attempt. The API decides about the messages that Redis left undecided."""
        results = [answer for answer in answers if isinstance(answer, PushResult)]
        if len(results) == len(answers):
            return results
        again = [
            _resumed(message, parcel, answer)
            for message, (_, parcel), answer in zip(messages, items, answers, strict=True)
            if isinstance(answer, Undecided)
        ]
        decided = iter(await self._push_through_api(again))
        return [next(decided) if isinstance(answer, Undecided) else answer for answer in answers]

    async def _push_through_api(self, messages: Sequence[OutgoingMessage]) -> list[PushResult]:
        return await BulkPush(messages, options=self._options, telemetry=Silent()).send(self._transport)


async def put(opened: OpenedRedis, queue: QueueRef, parcels: Sequence[Parcel]) -> list[Answer]:
    """Put messages into one queue, in a named call; returns an answer per message."""
    return _read(queue, parcels, await _send(opened, queue, parcels))


async def _send(opened: OpenedRedis, queue: QueueRef, parcels: Sequence[Parcel]) -> bytes | list[Answer]:
    """Send one call; returns the letters of the script's reply, or answers if there is no reply."""
    call = opened.calls.take()
    packed = [part for parcel in parcels for part in parcel[1:]]
    try:
        letters = await opened.broker.enqueue_packed(queue, packed, call)
    except WeirError as error:
        if is_unknown(error):
            # The slot is not used again: the call may still take effect.
            opened.note_away()
            unknown = opened.calls.within_owner(call)
            return [Undecided(call=unknown, place=place) for place in range(len(parcels))]
        opened.calls.give_back(call)
        if is_passing(error):
            opened.note_away()
            return [GATED] * len(parcels)
        return [PushResult(status="refused", problem=problem(error))] * len(parcels)
    opened.calls.give_back(call)
    return letters


def _read(queue: QueueRef, parcels: Sequence[Parcel], told: bytes | list[Answer]) -> list[Answer]:
    if isinstance(told, list):
        return told
    return [GATED if one is None else one for one in read_letters(queue, parcels, told)]


def _only_queue(items: Sequence[Item]) -> QueueRef | None:
    """The queue of all items; None if they belong to several queues."""
    first = items[0][0]
    return first if all(queue is first for queue, _ in items) else None


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a long list of messages. If all are for one queue, one call carries them."""

    messages: list[OutgoingMessage]
    items: list[Item]

    @property
    def only_queue(self) -> QueueRef | None:
        return _only_queue(self.items)


class _Results:
    """The results of a long list. Results of an accepted part are made while Redis works on the next part."""

    def __init__(self) -> None:
        self._made: list[PushResult] = []
        self._accepted: Sequence[Parcel] = ()

    def add(self, results: Sequence[PushResult]) -> None:
        self.make()
        self._made += results

    def add_later(self, accepted: Sequence[Parcel]) -> None:
        self.make()
        self._accepted = accepted

    def make(self) -> None:
        """Make the results that were left for later."""
        self._made += accepted_results(self._accepted)
        self._accepted = ()

    def all(self) -> list[PushResult]:
        self.make()
        return self._made


class _Parts:
    """Cuts a long list. While Redis works on one part, the next one is packed."""

    def __init__(self, opened: OpenedRedis, messages: Sequence[OutgoingMessage]) -> None:
        self._parts = self._cut(opened, messages)
        self._next: _Part | Exception | None = None

    def prepare(self) -> None:
        """Pack the next part, unless it is packed already. An error is raised when the part is taken."""
        if self._next is None:
            try:
                self._next = next(self._parts, None)
            except Exception as error:
                self._next = error

    def take(self) -> _Part | None:
        self.prepare()
        part, self._next = self._next, None
        if isinstance(part, Exception):
            raise part
        return part

    def _cut(self, opened: OpenedRedis, messages: Sequence[OutgoingMessage]) -> Iterator[_Part]:
        part = _Part([], [])
        size = 0
        for message in messages:
            item = _item(opened, message)
            length = len(item[1][2])
            if part.items and (len(part.items) == MAX_BATCH or size + length > MAX_CALL_BYTES):
                yield part
                part, size = _Part([], []), 0
            part.messages.append(message)
            part.items.append(item)
            size += length
        if part.items:
            yield part


def _item(opened: OpenedRedis, message: OutgoingMessage) -> Item:
    try:
        return opened.queue(message.queue), pack_message(message, opened.options)
    except WeirError as error:
        raise to_api_error(error) from None


def _resumed(message: OutgoingMessage, parcel: Parcel, answer: Undecided) -> OutgoingMessage:
    """The message as the API is to push it: with its call, if that may have taken effect."""
    if answer.call is None:
        return message
    call = {
        "slot": answer.call.slot,
        "number": int(answer.call.id),
        "place": answer.place,
        "message_id": parcel[0],
    }
    return ResumedMessage(**asdict(message), call=call)
