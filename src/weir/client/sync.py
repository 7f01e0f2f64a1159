"""The same client for code without an event loop: `AsyncWeir` over connections that block."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar, Self, TypeVar

from weir.client.base_url import ClientUrls, lean_base_urls
from weir.client.blocking_connections import BlockingConnections, run_blocking
from weir.client.core import AsyncWeir
from weir.client.http1 import Connections
from weir.client.httpx_connections import HttpClient
from weir.client.options import DEFAULTS, QueuedOperationBehavior
from weir.client.outcomes import MessageOutcome
from weir.client.sharing import LoneRequests
from weir.client.sync_logs import BlockingLogs, next_or_none
from weir.client.transport import common_headers
from weir.client.values import (
    Operation,
    OutgoingMessage,
    Payload,
    PushResult,
    ReceivedMessage,
    SettleStatus,
)
from weir.model.durations import Duration

T = TypeVar("T")
_CANCEL_S = 5.0


class _BlockingWeir(AsyncWeir):
    """An `AsyncWeir` whose coroutines never suspend: they wait in system calls."""

    _requests: ClassVar[type[LoneRequests]] = LoneRequests
    _blocks: ClassVar[bool] = True

    def _connections(self, http: HttpClient | None) -> Connections:
        lean = lean_base_urls(self.options.base_urls)
        if lean is None:
            raise AssertionError("a client of these base URLs is run by a loop")
        return BlockingConnections(lean, common_headers(self.options))


class LoopThread:
    """A thread with an event loop, for HTTP clients that need one."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="weir-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if os.getpid() != self._process:
            # The thread stayed in the parent, so nobody would ever answer.
            coroutine.close()
            raise RuntimeError(
                "this client was made before the process was forked, and it needs a thread (for a proxy, "
                "`http=` or a Redis Cluster); make one in the child"
            )
        ended = threading.Event()

        async def work() -> T:
            try:
                return await coroutine
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            # What comes next, such as closing a stream, must not meet this step.
            future.cancel()
            ended.wait(_CANCEL_S)
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _close_blocking(client: AsyncWeir) -> None:
    with suppress(Exception):
        run_blocking(client.aclose())


class Weir(BlockingLogs):
    """A client of Weir that blocks. It has the options and the methods of `AsyncWeir`.

    ```python
    with Weir("http://127.0.0.1:8420", token="weir_…") as weir:
        weir.push("orders", {"order": 42}, key="customer-7")
    ```

    It may be used from several threads at once, and a process that was forked may go on using it, unless it
    needs a thread: for a proxy, `http=` or a Redis Cluster make a client in the child.
    """

    def __init__(
        self,
        base_urls: str | Sequence[str],
        *,
        token: str = "",
        organization: str | None = None,
        project: str | None = None,
        environment: str | None = None,
        timeout: Duration = DEFAULTS.timeout_s,
        retry_attempts: int = DEFAULTS.retry_attempts,
        retry_delay: Duration = DEFAULTS.retry_delay_s,
        max_retry_delay: Duration = DEFAULTS.max_retry_delay_s,
        retry_on_429: bool = DEFAULTS.retry_on_429,
        honor_retry_after: bool = DEFAULTS.honor_retry_after,
        queued_operation_behavior: QueuedOperationBehavior = DEFAULTS.queued_operation_behavior,
        poll_interval: Duration = DEFAULTS.poll_interval_s,
        poll_timeout: Duration = DEFAULTS.poll_timeout_s,
        telemetry: bool = DEFAULTS.telemetry,
        http: HttpClient | None = None,
    ) -> None:
        urls = ClientUrls.of(base_urls, token=token)
        blocks = http is None and lean_base_urls(urls.api) is not None and not urls.names_cluster
        self._client: AsyncWeir = (_BlockingWeir if blocks else AsyncWeir)(
            base_urls,
            token=token,
            organization=organization,
            project=project,
            environment=environment,
            timeout=timeout,
            retry_attempts=retry_attempts,
            retry_delay=retry_delay,
            max_retry_delay=max_retry_delay,
            retry_on_429=retry_on_429,
            honor_retry_after=honor_retry_after,
            queued_operation_behavior=queued_operation_behavior,
            poll_interval=poll_interval,
            poll_timeout=poll_timeout,
            telemetry=telemetry,
            http=http,
        )
        self._thread = None if blocks else LoopThread()
        self._closed = False
        # In direct mode a client that is never closed must not leave names of calls in Redis either.
        self._finalizer = (
            weakref.finalize(self, _close_blocking, self._client) if blocks and urls.redis else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. `with` does it by itself.

        ```python
        weir.close()
        ```
        """
        if self._closed:
            return
        self._closed = True
        if self._finalizer is not None:
            self._finalizer.detach()
        # First the connections, which belong to the loop, and then the loop itself.
        self._run(self._client.aclose())
        if self._thread is not None:
            self._thread.close()

    def push(
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
        """Put one message into a queue; see `AsyncWeir.push`.

        ```python
        result = weir.push("orders", {"order": 42}, key="customer-7", delay=5)
        ```
        """
        return self._run(
            self._client.push(
                queue,
                payload,
                key=key,
                headers=headers,
                priority=priority,
                delay=delay,
                deliver_at=deliver_at,
                ttl=ttl,
                idempotency_key=idempotency_key,
            )
        )

    def push_many(self, messages: Sequence[OutgoingMessage]) -> list[PushResult]:
        """Put messages into queues; see `AsyncWeir.push_many`.

        ```python
        results = weir.push_many([OutgoingMessage(queue="orders", payload={"order": n}) for n in range(3)])
        ```
        """
        return self._run(self._client.push_many(messages))

    def pop(
        self,
        queue: str | None = None,
        *,
        limit: int = 1,
        wait: Duration = 0,
        lease: Duration | None = None,
        consumer: str | None = None,
    ) -> list[ReceivedMessage]:
        """Take messages under leases; see `AsyncWeir.pop`.

        ```python
        for message in weir.pop("orders", limit=10, wait=20):
            weir.ack(message)
        ```
        """
        return self._run(self._client.pop(queue, limit=limit, wait=wait, lease=lease, consumer=consumer))

    def ack(
        self, message: ReceivedMessage, *, result: Payload = None, took: Duration | None = None
    ) -> SettleStatus:
        """Mark the message as done; see `AsyncWeir.ack`.

        ```python
        (message,) = weir.pop("orders")
        weir.ack(message, result={"shipped": True})
        ```
        """
        return self._run(self._client.ack(message, result=result, took=took))

    def ack_many(self, messages: Sequence[ReceivedMessage]) -> list[SettleStatus]:
        """Mark messages as done; see `AsyncWeir.ack_many`.

        ```python
        weir.ack_many(weir.pop("orders", limit=10))
        ```
        """
        return self._run(self._client.ack_many(messages))

    def nack(
        self,
        message: ReceivedMessage,
        *,
        error: str = "",
        delay: Duration | None = None,
        dead_letter: bool = False,
        uncounted: bool = False,
        took: Duration | None = None,
    ) -> SettleStatus:
        """Mark the message as failed; see `AsyncWeir.nack`.

        ```python
        (message,) = weir.pop("orders")
        weir.nack(message, error="the bank is closed", delay=60)
        ```
        """
        return self._run(
            self._client.nack(
                message,
                error=error,
                delay=delay,
                dead_letter=dead_letter,
                uncounted=uncounted,
                took=took,
            )
        )

    def extend(self, message: ReceivedMessage, *, lease: Duration) -> ReceivedMessage:
        """Keep the message for longer; see `AsyncWeir.extend`.

        ```python
        (message,) = weir.pop("orders")
        message = weir.extend(message, lease=60)
        ```
        """
        return self._run(self._client.extend(message, lease=lease))

    def revoked(self, messages: Sequence[ReceivedMessage]) -> list[bool]:
        """Which of these messages were cancelled since they were taken; see `AsyncWeir.revoked`.

        ```python
        (message,) = weir.pop("orders")
        (is_cancelled,) = weir.revoked([message])
        ```
        """
        return self._run(self._client.revoked(messages))

    def progress(self, message: ReceivedMessage, value: Payload) -> None:
        """Tell how far the handler of a message is; see `AsyncWeir.progress`.

        ```python
        (message,) = weir.pop("orders")
        weir.progress(message, {"done": 3, "of": 10})
        ```
        """
        return self._run(self._client.progress(message, value))

    def outcome(self, message_id: str, *, wait: Duration = 0) -> MessageOutcome:
        """How a message ended, and its result; see `AsyncWeir.outcome`.

        ```python
        outcome = weir.outcome(message_id, wait=10)
        ```
        """
        return self._run(self._client.outcome(message_id, wait=wait))

    def watch(self, message_id: str, *, timeout: Duration) -> Generator[MessageOutcome, None, None]:
        """Follow a message to its end; see `AsyncWeir.watch`.

        ```python
        for outcome in weir.watch(message_id, timeout=60):
            print(outcome.status, outcome.progress)
        ```
        """
        # A stream needs a loop, which a client that blocks does not have.
        thread = self._thread or LoopThread()
        outcomes = self._client.watch(message_id, timeout=timeout)
        try:
            while (outcome := thread.run(next_or_none(outcomes))) is not None:
                yield outcome
        finally:
            thread.run(outcomes.aclose())
            if self._thread is None:
                thread.close()

    def finish_member(self, group: str, *, member: int, of: int) -> bool:
        """Note that a member of a group of messages is done; see `AsyncWeir.finish_member`.

        ```python
        complete = weir.finish_member("import-7", member=0, of=3)
        ```
        """
        return self._run(self._client.finish_member(group, member=member, of=of))

    def cancel(self, message_id: str) -> bool:
        """Cancel a message that waits or is worked on; see `AsyncWeir.cancel`.

        ```python
        weir.cancel(message_id)
        ```
        """
        return self._run(self._client.cancel(message_id))

    def operation(self, operation_id: str) -> Operation:
        """A queued operation as it is now; see `AsyncWeir.operation`.

        ```python
        operation = weir.operation(operation_id)
        ```
        """
        return self._run(self._client.operation(operation_id))

    def wait_for_operation(self, operation_id: str, *, timeout: Duration | None = None) -> Operation:
        """Poll until the operation has ended; see `AsyncWeir.wait_for_operation`.

        ```python
        weir.wait_for_operation(operation_id, timeout=60)
        ```
        """
        return self._run(self._client.wait_for_operation(operation_id, timeout=timeout))

    def cancel_operation(self, operation_id: str) -> Operation:
        """Cancel an operation that is still pending; see `AsyncWeir.cancel_operation`.

        ```python
        weir.cancel_operation(operation_id)
        ```
        """
        return self._run(self._client.cancel_operation(operation_id))

    def retry_operation(self, operation_id: str) -> Operation:
        """Queue a failed operation again; see `AsyncWeir.retry_operation`.

        ```python
        weir.retry_operation(operation_id)
        ```
        """
        return self._run(self._client.retry_operation(operation_id))

    def operation_stats(self) -> dict[str, Any]:
        """The number of waiting operations, and the state of the server; see `AsyncWeir.operation_stats`.

        ```python
        stats = weir.operation_stats()
        ```
        """
        return self._run(self._client.operation_stats())

    def ping(self) -> None:
        """Ask whether the server answers and knows the token; see `AsyncWeir.ping`.

        ```python
        weir.ping()
        ```
        """
        return self._run(self._client.ping())

    def message(self, message_id: str) -> dict[str, Any]:
        """Everything about a message; see `AsyncWeir.message`.

        ```python
        (taken,) = weir.pop("orders")
        print(weir.message(taken.id)["state"])
        ```
        """
        return self._run(self._client.message(message_id))

    def find_message(self, queue: str, *, idempotency_key: str) -> str | None:
        """The id of the message that was pushed with an idempotency key; see `AsyncWeir.find_message`.

        ```python
        found = weir.find_message("orders", idempotency_key="order-42")
        ```
        """
        return self._run(self._client.find_message(queue, idempotency_key=idempotency_key))

    def dead_letter(self, message_id: str, *, queue: str) -> dict[str, Any]:
        """A dead letter; see `AsyncWeir.dead_letter`.

        ```python
        letter = weir.dead_letter(message_id, queue="orders")
        ```
        """
        return self._run(self._client.dead_letter(message_id, queue=queue))

    def queue(self, name: str) -> dict[str, Any]:
        """A queue right now; see `AsyncWeir.queue`.

        ```python
        orders = weir.queue("orders")
        ```
        """
        return self._run(self._client.queue(name))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the client, and wait for its result."""
        return run_blocking(coroutine) if self._thread is None else self._thread.run(coroutine)


def run_with(weir: Weir, work: Callable[[AsyncWeir], Coroutine[Any, Any, T]]) -> T:
    """Run code that is written for `AsyncWeir`, over the connections of a client that blocks."""
    return weir._run(work(weir._client))
