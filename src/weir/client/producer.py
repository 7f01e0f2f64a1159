"""A producer that sends in batches: many small pushes become few requests, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Self, TypeAlias

from weir.client.core import AsyncWeir
from weir.client.encoding import encode
from weir.client.errors import ApiError, ProducerFull, Unreachable
from weir.client.values import OutgoingMessage, Payload, PushResult, make_key, raise_refused
from weir.model.durations import Duration, to_seconds
from weir.model.limits import MAX_BATCH

_Batch: TypeAlias = Sequence[tuple[OutgoingMessage, asyncio.Future[PushResult]]]


class Producer:
    """Sends messages in batches, one request at a time, so that their order is kept.

    ```python
    async with Producer(weir) as producer:
        futures = [producer.submit("orders", {"order": n}) for n in range(100)]
        await producer.push("orders", {"order": 100})
    ```

    `push` waits for the answer; `submit` returns a future for it at once. The end of the block sends the
    rest.

    - `max_batch`: the most messages in one request.
    - `linger`: how long a message waits for others to join it.
    - `max_waiting`: the most messages without an answer. Beyond it `push` waits and `submit` raises
      `ProducerFull`.
    """

    def __init__(
        self,
        weir: AsyncWeir,
        *,
        max_batch: int = 500,
        linger: Duration = 0.005,
        max_waiting: int = 10_000,
    ) -> None:
        self._weir = weir
        self._max_batch = min(max_batch, MAX_BATCH)
        self._linger_s = to_seconds(linger)
        self._max_waiting = max_waiting
        self._unanswered = 0
        self._answered = asyncio.Condition()
        self._entering = asyncio.Lock()
        self._waiting: list[tuple[OutgoingMessage, asyncio.Future[PushResult]]] = []
        self._filled = asyncio.Event()
        self._closing = False
        self._sender: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._sender = asyncio.create_task(self._send_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def push(
        self,
        queue: str,
        payload: Payload,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        ttl: Duration | None = None,
        idempotency_key: str | None = None,
    ) -> PushResult:
        """Put one message into a queue and wait for the answer. `AsyncWeir.push` explains the arguments.

        ```python
        async with Producer(weir) as producer:
            result = await producer.push("orders", {"order": 42})
        ```
        """
        # The lock keeps the order: a message that waits here must not be overtaken by a later one.
        async with self._entering, self._answered:
            await self._answered.wait_for(lambda: self._unanswered < self._max_waiting)
            future = self._take(
                OutgoingMessage(
                    queue=queue,
                    payload=payload,
                    key=key,
                    headers=headers or {},
                    priority=priority,
                    delay=delay,
                    deliver_at=deliver_at,
                    ttl=ttl,
                    idempotency_key=make_key() if idempotency_key is None else idempotency_key,
                )
            )
        return await future

    def submit(
        self,
        queue: str,
        payload: Payload,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        ttl: Duration | None = None,
        idempotency_key: str | None = None,
    ) -> asyncio.Future[PushResult]:
        """Put one message into a queue; the future gets the answer. `AsyncWeir.push` explains the arguments.

        ```python
        async with Producer(weir) as producer:
            future = producer.submit("orders", {"order": 42})
        result = await future
        ```

        Raises `ProducerFull` if `max_waiting` messages have no answer yet.
        """
        # A locked `_entering` means that a push waits; this message must not overtake it.
        if self._unanswered >= self._max_waiting or self._entering.locked():
            raise ProducerFull(
                f"{self._unanswered} messages wait for their answers; await `push`, or `flush` first"
            )
        return self._take(
            OutgoingMessage(
                queue=queue,
                payload=payload,
                key=key,
                headers=headers or {},
                priority=priority,
                delay=delay,
                deliver_at=deliver_at,
                ttl=ttl,
                idempotency_key=make_key() if idempotency_key is None else idempotency_key,
            )
        )

    async def flush(self) -> None:
        """Wait until every message has its answer.

        ```python
        async with Producer(weir) as producer:
            producer.submit("orders", {"order": 42})
            await producer.flush()
        ```
        """
        async with self._answered:
            await self._answered.wait_for(lambda: self._unanswered == 0)

    async def aclose(self) -> None:
        """Send what is left, then stop. `async with` does it by itself.

        ```python
        async with Producer(weir) as producer:
            producer.submit("orders", {"order": 42})
            await producer.aclose()
        ```
        """
        self._closing = True
        self._filled.set()
        if self._sender is not None:
            # A caller that gives up must not take the sender with it: it sends the rest.
            await asyncio.shield(self._sender)

    def _take(self, message: OutgoingMessage) -> asyncio.Future[PushResult]:
        if self._closing or self._sender is None:
            raise RuntimeError("the producer is closed; use it inside of `async with`")
        future: asyncio.Future[PushResult] = asyncio.get_running_loop().create_future()
        self._unanswered += 1
        self._waiting.append((message, future))
        self._filled.set()
        return future

    async def _send_all(self) -> None:
        try:
            await self._send_until_closed()
        finally:
            self._closing = True
            left, self._waiting = self._waiting, []
            _fail(left, Unreachable("the producer ended before the message was sent"))
            async with self._answered:
                self._unanswered -= len(left)
                self._answered.notify_all()

    async def _send_until_closed(self) -> None:
        while True:
            await self._filled.wait()
            if not self._waiting and self._closing:
                return
            if len(self._waiting) < self._max_batch and not self._closing:
                await asyncio.sleep(self._linger_s)
            batch, self._waiting = self._waiting[: self._max_batch], self._waiting[self._max_batch :]
            if not self._waiting and not self._closing:
                self._filled.clear()
            if batch:
                await self._send(batch)

    async def _send(self, batch: _Batch) -> None:
        try:
            await self._push(batch)
        except (TypeError, ValueError):
            # One of the messages cannot be said in JSON, and nothing was sent.
            rest = [one for one in batch if _can_be_sent(*one)]
            try:
                await self._push(rest)
            except (TypeError, ValueError) as error:
                _fail(rest, error)
        finally:
            _fail(batch, Unreachable("the producer ended before the answer came"))
            async with self._answered:
                self._unanswered -= len(batch)
                self._answered.notify_all()

    async def _push(self, batch: _Batch) -> None:
        try:
            results = await self._weir.push_many([message for message, _ in batch])
        except (TypeError, ValueError):
            raise
        except Exception as error:
            # The batch fails and the producer goes on: later messages may succeed.
            _fail(batch, error)
        else:
            for (_, future), result in zip(batch, results, strict=True):
                _answer(future, result)


def _can_be_sent(message: OutgoingMessage, future: asyncio.Future[PushResult]) -> bool:
    try:
        encode(message.document(retry_window_ms=0))
    except (TypeError, ValueError) as error:
        if not future.done():
            future.set_exception(error)
        return False
    return True


def _fail(batch: _Batch, error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)


def _answer(future: asyncio.Future[PushResult], result: PushResult) -> None:
    if future.done():
        return
    try:
        future.set_result(raise_refused(result))
    except ApiError as error:
        future.set_exception(error)
