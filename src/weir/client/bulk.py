"""A long list of messages as a few requests: while one is answered, the next one is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from weir.client.encoding import encode
from weir.client.sharing import MAX_SHARED_BYTES
from weir.client.telemetry import Telemetry
from weir.client.transport import Transport
from weir.client.values import OutgoingMessage, PushResult
from weir.model.limits import MAX_BATCH
from weir.model.message import headers_fit
from weir.model.parents import chained_headers

NO_TRACE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    messages: Sequence[OutgoingMessage]
    body: bytes

    @property
    def queue(self) -> str | None:
        """The queue of all its messages; None if there are several."""
        queues = {message.queue for message in self.messages}
        return queues.pop() if len(queues) == 1 else None


class BulkPush:
    """One `push_many`. Its requests go one after the other: messages with the same key keep their order."""

    def __init__(
        self, messages: Sequence[OutgoingMessage], *, retry_window_ms: int, telemetry: Telemetry
    ) -> None:
        self._retry_window_ms = retry_window_ms
        self._chained = chained_headers()
        self._telemetry = telemetry
        self._batches = self._cut(messages)
        self._next: _Batch | Exception | None = None
        self._answers: list[dict[str, Any]] = []
        """Of the last request."""
        self._results: list[PushResult] = []

    async def send(self, transport: Transport) -> list[PushResult]:
        """Push everything; the results are in the order of the messages."""
        self._prepare()
        while (batch := self._take()) is not None:
            answer = await self._send_batch(transport, batch)
            self._read_answers()
            self._answers = answer["items"]
        self._read_answers()
        return self._results

    async def _send_batch(self, transport: Transport, batch: _Batch) -> dict[str, Any]:
        with self._telemetry.operation("send", queue=batch.queue, messages=len(batch.messages)) as trace:
            body = self._body(batch.messages, trace) if trace else batch.body
            return await transport.send(
                "POST", "/api/v1/push", content=lambda: body, meanwhile=self._use_the_wait
            )

    def _use_the_wait(self) -> None:
        self._read_answers()
        self._prepare()

    def _read_answers(self) -> None:
        self._results += map(PushResult.of, self._answers)
        self._answers = []

    def _prepare(self) -> None:
        """Make the next request, unless it is made. What goes wrong is raised when it is taken."""
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
        """The messages in requests that are not too long."""
        start = 0
        while start < len(messages):
            batch = self._batch(messages[start : start + MAX_BATCH])
            yield batch
            start += len(batch.messages)

    def _batch(self, messages: Sequence[OutgoingMessage]) -> _Batch:
        """As many of the messages, from the front, as fit: all of them, half of them, and so on."""
        body = self._body(messages, NO_TRACE)
        while len(body) > MAX_SHARED_BYTES and len(messages) > 1:
            messages = messages[: len(messages) // 2]
            body = self._body(messages, NO_TRACE)
        return _Batch(messages=messages, body=body)

    def _body(self, messages: Sequence[OutgoingMessage], trace: Mapping[str, str]) -> bytes:
        return encode({"items": [self._item(message, trace) for message in messages]})

    def _item(self, message: OutgoingMessage, trace: Mapping[str, str]) -> dict[str, Any]:
        sent = with_origin(message, trace=trace, chained=self._chained)
        return sent.document(retry_window_ms=self._retry_window_ms)


def with_origin(
    message: OutgoingMessage, *, trace: Mapping[str, str], chained: Mapping[str, str]
) -> OutgoingMessage:
    """The message with the headers that say where it comes from. A trace of its own stays.

    Its parent is the message that is worked on, also if a handler copied the headers of that message.
    """
    if not trace and not chained:
        return message
    headers = {**trace, **message.headers, **chained}
    # Full headers go without them: the message matters more.
    return replace(message, headers=headers) if headers_fit(headers) else message
