"""Pushes of clients in direct mode, with the promises that the API keeps.

Each push is a named call. One that is gated goes through the API, behind the operations that hold its gate.
So does one that Redis does not answer, with the name of its call, so that it enters once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weir.broker.broker import NamedCall
from weir.client.bulk import BulkPush
from weir.client.direct_opening import DirectRedis, OpenedRedis
from weir.client.direct_values import is_passing, to_api_error, to_new_message
from weir.client.options import DEFAULTS, ClientOptions
from weir.client.retry import pause_s, worth_retrying
from weir.client.telemetry import Silent
from weir.client.transport import Transport
from weir.client.values import OutgoingMessage, PushResult
from weir.errors import WeirError
from weir.exchange.attempt import DirectAttempt, Held, RequestCoalescer
from weir.exchange.seam import PushAnswer, Pushed, PushItem, Refused
from weir.model.limits import MAX_BATCH
from weir.model.message import Enqueued, NewMessage
from weir.model.names import QueueRef
from weir.model.problem_documents import problem
from weir.operations.gates import Reach

MAX_CALL_BYTES = 1 << 20
"""Payloads of one call, so that none holds Redis for long."""


class _AllInReach(Reach):
    """A client keeps in mind itself for how long Redis is away."""

    def lose(self, shard: int) -> None:
        return


class _ClientAttempt(DirectAttempt):
    """The attempt of a client. Its broker bounds the time of a call itself."""

    @classmethod
    def at(cls, opened: OpenedRedis) -> _ClientAttempt:
        return cls(broker=opened.broker, reach=_AllInReach(opened.options.shards), calls=opened.calls)

    async def _enqueue(self, queue: QueueRef, messages: list[NewMessage], call: NamedCall) -> list[Enqueued]:
        return await self._broker.enqueue(queue, messages, entry=call)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResumedMessage(OutgoingMessage):
    """A message that Redis may have got, and the call that it was in."""

    call: Mapping[str, Any]

    def document(self, *, retry_window_ms: int = DEFAULTS.retry_window_ms) -> dict[str, Any]:
        return {**OutgoingMessage.document(self, retry_window_ms=retry_window_ms), "call": self.call}


class DirectPushes:
    """Puts messages into the queues of one environment.

    Where there is an event loop, concurrent pushes share calls, as those over HTTP share requests.
    """

    def __init__(self, redis: DirectRedis, options: ClientOptions, transport: Transport) -> None:
        self._redis = redis
        self._options = options
        self._transport = transport
        self._attempt: _ClientAttempt | None = None
        self._shared: RequestCoalescer[PushItem, PushAnswer] = RequestCoalescer(self._push_items, at_once=1)

    async def push(self, message: OutgoingMessage) -> PushResult:
        """Push one message; the result may be a refusal. It is tried again as one over HTTP would be."""
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
        opened = await self._redis.opened()
        if opened.is_away:
            return (await self._push_through_api([message]))[0]
        item = _item(opened, message)
        if self._redis.blocking:
            (answer,) = await self._push_items([item])
        else:
            (answer,) = await self._shared.submit([item])
        return (await self._finish(opened, [message], [item], [answer]))[0]

    async def push_many(self, messages: Sequence[OutgoingMessage]) -> list[PushResult]:
        """Push messages in order; there is a result for each."""
        opened = await self._redis.opened()
        results: list[PushResult] = []
        for part, items in _cut(opened, messages):
            if opened.is_away:
                results += await self._push_through_api(part)
            else:
                # What is held goes through the API before the next part, which must not overtake it.
                results += await self._finish(opened, part, items, await self._push_items(items))
        return results

    async def _push_items(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        """One call per queue, one after the other."""
        attempt = self._attempt = self._attempt or _ClientAttempt.at(await self._redis.opened())
        first = items[0].queue
        if all(item.queue is first for item in items):
            return await attempt.push_to(first, [item.message for item in items])
        queues: dict[QueueRef, list[int]] = {}
        for at, item in enumerate(items):
            queues.setdefault(item.queue, []).append(at)
        answers: dict[int, PushAnswer] = {}
        for queue, places in queues.items():
            done = await attempt.push_to(queue, [items[at].message for at in places])
            answers.update(zip(places, done, strict=True))
        return [answers[at] for at in range(len(items))]

    async def _finish(
        self,
        opened: OpenedRedis,
        messages: Sequence[OutgoingMessage],
        items: Sequence[PushItem],
        answers: Sequence[PushAnswer],
    ) -> list[PushResult]:
        """The results of an attempt. What Redis did not decide, the API does."""
        left = [at for at, answer in enumerate(answers) if _is_undecided(answer)]
        if not left:
            return [_result(answer) for answer in answers]
        if any(_is_lost(answers[at]) for at in left):
            opened.note_away()
        again = [_resumed(messages[at], items[at], answers[at]) for at in left]
        decided = dict(zip(left, await self._push_through_api(again), strict=True))
        return [decided[at] if at in decided else _result(answer) for at, answer in enumerate(answers)]

    async def _push_through_api(self, messages: Sequence[OutgoingMessage]) -> list[PushResult]:
        window_ms = self._options.retry_window_ms
        return await BulkPush(messages, retry_window_ms=window_ms, telemetry=Silent()).send(self._transport)


def _item(opened: OpenedRedis, message: OutgoingMessage) -> PushItem:
    try:
        return PushItem(queue=opened.queue(message.queue), message=to_new_message(message, opened.options))
    except WeirError as error:
        raise to_api_error(error) from None


def _cut(
    opened: OpenedRedis, messages: Sequence[OutgoingMessage]
) -> Iterator[tuple[list[OutgoingMessage], list[PushItem]]]:
    """The messages in parts that one call may carry."""
    part: list[OutgoingMessage] = []
    items: list[PushItem] = []
    size = 0
    for message in messages:
        item = _item(opened, message)
        if part and (len(part) == MAX_BATCH or size + len(item.message.payload) > MAX_CALL_BYTES):
            yield part, items
            part, items, size = [], [], 0
        part.append(message)
        items.append(item)
        size += len(item.message.payload)
    if part:
        yield part, items


def _is_undecided(answer: PushAnswer) -> bool:
    """Whether Redis neither took nor refused a message."""
    return isinstance(answer, Held) or _is_lost(answer)


def _is_lost(answer: PushAnswer) -> bool:
    """Whether Redis did not answer, or refused this client."""
    return isinstance(answer, Refused) and is_passing(answer.error)


def _resumed(message: OutgoingMessage, item: PushItem, answer: PushAnswer) -> OutgoingMessage:
    """The message as the API is to push it: with its call, if that may have taken effect."""
    if not isinstance(answer, Held) or answer.call is None:
        return message
    members = {name: getattr(message, name) for name in OutgoingMessage.__slots__}
    call = {
        "slot": answer.call.slot,
        "number": int(answer.call.id),
        "place": answer.place,
        "message_id": item.message.id,
    }
    return _ResumedMessage(**members, call=call)


def _result(answer: PushAnswer) -> PushResult:
    match answer:
        case Pushed():
            return PushResult(status="duplicate" if answer.duplicate else "accepted", id=answer.message_id)
        case Refused():
            return PushResult(status="refused", problem=problem(answer.error))
    raise AssertionError(f"a direct attempt queued a message: {answer}")
