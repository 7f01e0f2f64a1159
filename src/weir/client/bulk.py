"""A long list of messages as a few requests: while one is answered, the next one is made."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from weir.client.encoding import encode, encode_quickly
from weir.client.errors import ApiError, ClientError
from weir.client.options import ClientOptions
from weir.client.retry import pause_s
from weir.client.sharing import MAX_SHARED_BYTES, OF_THE_BODY, items_of, pointed_at
from weir.client.telemetry import Telemetry
from weir.client.transport import Transport
from weir.client.values import OutgoingMessage, PushResult
from weir.errors import QueueFull
from weir.model.ids import CallSlots, NamedCall, new_id
from weir.model.limits import MAX_BATCH
from weir.model.message import headers_fit
from weir.model.parents import chained_headers
from weir.operations.model import Reason

NO_TRACE: Mapping[str, str] = {}
_ANSWERED = (QueueFull.code,)
"""Refusals that are answers of the broker, and not trouble on the way there."""
# A plain text: comparing 1,000 items with a member of the enum took 130 us, with this it takes 36.
_WAITS = Reason.BROKER_UNAVAILABLE.value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    messages: Sequence[OutgoingMessage]
    items: bytes
    """The items of the request, encoded."""
    is_named: bool
    """Whether the request has a name, and its items have no made keys."""
    first_id: str

    @property
    def queue(self) -> str | None:
        """The queue of all its messages; None if there are several."""
        queues = {message.queue for message in self.messages}
        return queues.pop() if len(queues) == 1 else None

    def body(self, name: NamedCall | None) -> bytes:
        if name is None:
            return b'{"items":%b}' % self.items
        call = {"slot": name.slot, "number": int(name.id), "first_id": self.first_id}
        return b'{"items":%b,"call":%b}' % (self.items, encode(call))


class BulkPush:
    """One `push_many`. Its requests go one after the other: messages with the same key keep their order."""

    def __init__(
        self,
        messages: Sequence[OutgoingMessage],
        *,
        options: ClientOptions,
        telemetry: Telemetry,
        names: CallSlots | None = None,
    ) -> None:
        self._options = options
        self._chained = chained_headers()
        self._telemetry = telemetry
        self._names = names
        self._count = len(messages)
        self._batches = self._cut(messages)
        self._next: _Batch | Exception | None = None
        self._answers: list[dict[str, Any]] = []
        """The answers to the last request."""
        self._results: list[PushResult] = []

    async def send(self, transport: Transport) -> list[PushResult]:
        """Push everything; the results are in the order of the messages.

        An error is raised if no message was answered. Later it is the problem of each message without answer.
        """
        self._prepare()
        failure: Exception | None = None
        try:
            while failure is None and (batch := self._take()) is not None:
                answers, failure = await self._send_parts(transport, batch)
                self._read_answers()
                self._answers = answers
        except (TypeError, ValueError) as error:
            failure = error
        self._read_answers()
        if failure is not None and not self._results:
            raise failure
        if failure is not None:
            problem = _problem_of(failure)
            left = self._count - len(self._results)
            self._results += [PushResult(status="refused", problem=problem) for _ in range(left)]
        return self._results

    async def _send_parts(
        self, transport: Transport, batch: _Batch
    ) -> tuple[list[dict[str, Any]], Exception | None]:
        """Send a batch. Messages that are refused by themselves are left out, and answered with a problem.

        Returns the answers, and the error after which nothing more can be sent.
        """
        answers: dict[int, dict[str, Any]] = {}
        start = len(self._results) + len(self._answers)
        parts = [list(range(len(batch.messages)))]
        while parts:
            part = parts.pop()
            whole = len(part) == len(batch.messages)
            sent = batch if whole else self._encoded([batch.messages[at] for at in part], NO_TRACE)
            try:
                items = items_of(await self._send_batch(transport, sent), len(part))
            except ApiError as error:
                if error.status not in OF_THE_BODY:
                    return _in_order(answers, len(batch.messages), error), error
                bad = 0 if len(part) == 1 else pointed_at(error)
                if bad is not None and bad < len(part) and len(answers) < _MOST_PICKED:
                    answers[part[bad]] = _refusal(error, bad, place=start + part[bad])
                    parts += [rest] if (rest := part[:bad] + part[bad + 1 :]) else []
                elif len(part) == 1:
                    answers[part[0]] = _refusal(error, 0, place=start + part[0])
                else:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
            except ClientError as error:
                return _in_order(answers, len(batch.messages), error), error
            else:
                answers.update(zip(part, items, strict=True))
        return [answers[at] for at in range(len(batch.messages))], None

    async def _send_batch(self, transport: Transport, batch: _Batch) -> dict[str, Any]:
        with self._telemetry.operation("send", queue=batch.queue, messages=len(batch.messages)) as trace:
            if trace:
                batch = self._encoded(batch.messages, trace)
            if not batch.is_named or self._names is None:
                return await self._ask(transport, batch.body(None))
            return await self._send_named(transport, batch, self._names)

    async def _send_named(self, transport: Transport, batch: _Batch, names: CallSlots) -> dict[str, Any]:
        """Send a batch under a name. After a refusal, which a name remembers, send it under another name."""
        attempt = 1
        while True:
            name = names.take()
            try:
                answer = await self._ask(transport, batch.body(name), final=_ANSWERED)
            except ApiError as error:
                if error.code not in _ANSWERED:
                    raise
                names.give_back(name)
                if attempt == self._options.retry_attempts:
                    raise
                asked_s = None if error.retry_after is None else error.retry_after.total_seconds()
            else:
                if not _waits_under_its_name(answer):
                    names.give_back(name)
                return answer
            await transport.sleep(pause_s(attempt, self._options, asked_s=asked_s))
            attempt += 1

    async def _ask(self, transport: Transport, body: bytes, *, final: Collection[str] = ()) -> dict[str, Any]:
        return await transport.send(
            "POST",
            "/api/v1/push",
            content=lambda: body,
            meanwhile=self._use_the_wait,
            final=final,
            member="items",
        )

    def _use_the_wait(self) -> None:
        self._read_answers()
        self._prepare()

    def _read_answers(self) -> None:
        self._results += map(PushResult.of, self._answers)
        self._answers = []

    def _prepare(self) -> None:
        """Make the next request, unless it is made already. An error is raised when the request is taken."""
        if self._next is None:
            try:
                self._next = next(self._batches, None)
            except Exception as error:
                self._next = error

    def _take(self) -> _Batch | None:
        self._prepare()
        batch, self._next = self._next, None
        if isinstance(batch, Exception):
            raise batch
        return batch

    def _cut(self, messages: Sequence[OutgoingMessage]) -> Iterator[_Batch]:
        """Cut the messages into requests that are not too long."""
        start = 0
        while start < len(messages):
            batch = self._batch(messages[start : start + MAX_BATCH])
            yield batch
            start += len(batch.messages)

    def _batch(self, messages: Sequence[OutgoingMessage]) -> _Batch:
        """A batch of the first messages, as many as fit: all of them, or half of them, and so on."""
        batch = self._encoded(messages, NO_TRACE)
        while len(batch.items) > MAX_SHARED_BYTES and len(messages) > 1:
            messages = messages[: len(messages) // 2]
            batch = self._encoded(messages, NO_TRACE)
        return batch

    def _encoded(self, messages: Sequence[OutgoingMessage], trace: Mapping[str, str]) -> _Batch:
        is_named = self._names is not None and _can_be_named(messages)
        window_ms = self._options.retry_window_ms
        items = [
            with_origin(message, trace=trace, chained=self._chained).document(
                retry_window_ms=window_ms, keyed=not is_named
            )
            for message in messages
        ]
        data = encode_quickly(items) if is_named else encode(items)
        # A new id, not the first message's: the ids of the batch are counted up from it, and a message may be
        # in several batches.
        return _Batch(messages=messages, items=data, is_named=is_named, first_id=new_id())


_MOST_PICKED = 8
"""So many messages are taken out of a batch one by one. A batch with more bad ones is halved instead."""


def _in_order(answers: Mapping[int, dict[str, Any]], count: int, error: Exception) -> list[dict[str, Any]]:
    """The answers of a batch that was not sent to its end; none if nothing of it was answered."""
    rest = {"status": "refused", "problem": _problem_of(error)}
    return [answers.get(at, rest) for at in range(count)] if answers else []


def _refusal(error: ApiError, sent_at: int, *, place: int) -> dict[str, Any]:
    """The answer for a message that was refused by itself. Its pointers count over the whole list."""
    pattern = re.compile(rf"#/items/{sent_at}(?!\d)")

    def moved(text: object) -> str:
        return pattern.sub(f"#/items/{place}", str(text))

    problem = dict(error.problem)
    problem["status"] = error.status
    if "detail" in problem:
        problem["detail"] = moved(problem["detail"])
    if "errors" in problem:
        problem["errors"] = [{**one, "pointer": moved(one.get("pointer", ""))} for one in problem["errors"]]
    return {"status": "refused", "problem": problem}


def _problem_of(error: Exception) -> Mapping[str, Any]:
    """The problem of a message that was not sent because of this error."""
    if isinstance(error, ApiError):
        return {**error.problem, "status": error.status}
    if isinstance(error, ClientError):
        return {"status": 503, "code": "unreachable", "detail": str(error)}
    return {"status": 422, "code": "invalid_input", "detail": str(error)}


def _can_be_named(messages: Sequence[OutgoingMessage]) -> bool:
    """Whether one name can replace the keys of all messages: all are made keys, and of one queue."""
    queue = messages[0].queue
    return len(messages) > 1 and all(message.queue == queue and message.has_made_key for message in messages)


def _waits_under_its_name(answer: Mapping[str, Any]) -> bool:
    """Whether an operation will ask what the call did. The slot has to remember this call until then."""
    return _WAITS in [item.get("reason") for item in answer["items"]]


def with_origin(
    message: OutgoingMessage, *, trace: Mapping[str, str], chained: Mapping[str, str]
) -> OutgoingMessage:
    """The message with the headers that say where it comes from. A trace in its own headers stays.

    Its parent is the message that is worked on, even if a handler copied the headers of that message.
    """
    if not trace and not chained:
        return message
    headers = {**trace, **message.headers, **chained}
    # If these do not fit into the headers they are left out: the message matters more.
    return replace(message, headers=headers) if headers_fit(headers) else message
