"""The client: push, pop, settle, and the state of queued operations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import quote

from weir.client.base_url import ClientUrls
from weir.client.bulk import BulkPush, with_origin
from weir.client.deliveries import Deliveries, HttpDeliveries, SettleRequest
from weir.client.encoding import encode, encode_quickly
from weir.client.errors import ApiError
from weir.client.http1 import Connections, RequestKind
from weir.client.httpx_connections import HttpClient, new_http_client
from weir.client.logs import AsyncLogs
from weir.client.lookups import message_path
from weir.client.options import DEFAULTS, ClientOptions, QueuedOperationBehavior
from weir.client.outcomes import MessageOutcome
from weir.client.queued_operations import QueuedOperations
from weir.client.sharing import LoneRequests, SharedRequests
from weir.client.telemetry import telemetry as reporter
from weir.client.transport import Transport, loop_connections
from weir.client.values import (
    Operation,
    OutgoingMessage,
    Payload,
    PushResult,
    ReceivedMessage,
    SettleStatus,
    make_key,
    raise_refused,
)
from weir.client.watching import OutcomeStream
from weir.model.durations import Duration, to_ms, to_optional_ms, to_seconds
from weir.model.ids import CallSlots
from weir.model.limits import MAX_BATCH
from weir.model.message import Verb
from weir.model.parents import chained_headers

if TYPE_CHECKING:
    from weir.client.direct import Direct


class AsyncWeir(AsyncLogs):
    """A client of Weir, for code with an event loop. `Weir` is the same without one.

    ```python
    async with AsyncWeir("http://127.0.0.1:8420", token="weir_…") as weir:
        await weir.push("orders", {"order": 42}, key="customer-7")
    ```

    Concurrent pushes and acks of one client share requests: calls that come while a request is on its way
    share the next one. Several base URLs are tried in turn. Every request may be repeated without harm, so
    failures and 429s are retried as the options say. Durations are seconds or `timedelta`s.

    With a `redis://` URL the client works in direct mode: it speaks to Redis itself. It then also needs the
    API, at another base URL or at `WEIR_URL`. If `token` is not given, it takes `WEIR_TOKEN`.

    - `token`: the credential. With a token for several environments, `organization`, `project` and
      `environment` choose one.
    - `timeout`: how long one try may take. A pop may take longer, by its `wait`.
    - `retry_attempts`: tries of one request over all base URLs, the first one included.
    - `retry_delay`, `max_retry_delay`: the first pause between tries, and the longest. Pauses double.
    - `retry_on_429`: whether to try again when the server is too busy.
    - `honor_retry_after`: whether to pause for as long as the server asks, up to `max_retry_delay`.
    - `queued_operation_behavior`: what `push` does when the server stores the operation for later. `"return"`
      returns a result that is `queued`; `"poll"` asks every `poll_interval` until the operation has ended,
      for at most `poll_timeout`.
    - `telemetry`: report spans and metrics through OpenTelemetry, if `opentelemetry-api` is installed.
    - `http`: an HTTP client of your own, with its proxies and certificates. It stays open at the end.
    """

    _requests: ClassVar[type[LoneRequests]] = SharedRequests
    _blocks: ClassVar[bool] = False

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
        self.options = ClientOptions(
            base_urls=urls.api,
            token=urls.token,
            organization=organization,
            project=project,
            environment=environment,
            timeout_s=to_seconds(timeout),
            retry_attempts=retry_attempts,
            retry_delay_s=to_seconds(retry_delay),
            max_retry_delay_s=to_seconds(max_retry_delay),
            retry_on_429=retry_on_429,
            honor_retry_after=honor_retry_after,
            queued_operation_behavior=queued_operation_behavior,
            poll_interval_s=to_seconds(poll_interval),
            poll_timeout_s=to_seconds(poll_timeout),
            telemetry=telemetry,
        )
        self._http = http
        self._transport = Transport(self.options, connections=self._connections(http))
        self._pushes = self._requests(self._transport, self.options, path="/api/v1/push", member="items")
        self._acks = self._requests(
            self._transport,
            self.options,
            path="/api/v1/ack/batch",
            member="acknowledgments",
            alone_path="/api/v1/ack",
            kind=RequestKind.LEASE,
        )
        self._names = CallSlots()
        self._operations = QueuedOperations(self._transport, self.options)
        self.telemetry = reporter(telemetry)
        over_http = HttpDeliveries(self._transport, acks=self._acks, timeout_s=self.options.timeout_s)
        self._direct = None if urls.redis is None else self._open_direct(urls.redis, behind=over_http)
        self._deliveries: Deliveries = over_http if self._direct is None else self._direct.deliveries

    def _open_direct(self, url: str, *, behind: Deliveries) -> Direct:
        # Imported here, because it needs packages that a client over HTTP does without.
        try:
            from weir.client.direct import Direct
        except ModuleNotFoundError as error:
            text = f"direct mode needs the package `{error.name}`: pip install 'weir-queue[direct]'"
            raise ModuleNotFoundError(text, name=error.name) from error
        return Direct.at(
            url, options=self.options, transport=self._transport, behind=behind, blocking=self._blocks
        )

    def _connections(self, http: HttpClient | None) -> Connections:
        return loop_connections(self.options, http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. `async with` does it by itself.

        ```python
        await weir.aclose()
        ```
        """
        if self._direct is not None:
            await self._direct.aclose()
        await self._pushes.aclose()
        await self._acks.aclose()
        await self._transport.aclose()

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
        """Put one message into a queue. Raises `ApiError` if it is refused.

        ```python
        result = await weir.push("orders", {"order": 42}, key="customer-7", delay=5)
        ```

        - `payload`: bytes go as they are; any other value goes as JSON.
        - `key`: messages with the same key keep their order in a `per_key` queue.
        - `headers`: short texts that go with the message, such as its `content-type`.
        - `priority`: 0 to 9; 9 is served first in an `unordered` queue.
        - `delay` or `deliver_at`: when it may be taken, from now or as a time with a zone.
        - `ttl`: how long it may wait; then it goes to the dead letters as expired.
        - `idempotency_key`: a push under a key that the queue knows already is a `duplicate`. Without one a
          new key is made, so that retries of this push add nothing; the server remembers it for some minutes.
        """
        message = OutgoingMessage(
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
        with self.telemetry.operation("send", queue=queue, messages=1) as trace:
            sent = with_origin(message, trace=trace, chained=chained_headers())
            result = raise_refused(await self._push(sent))
        if result.queued and self.options.queued_operation_behavior == "poll":
            (result,) = await self._operations.wait_for_queued([message], [result])
        return raise_refused(result)

    async def _push(self, message: OutgoingMessage) -> PushResult:
        if self._direct is not None:
            return await self._direct.pushes.push(message)
        item = message.document(retry_window_ms=self.options.retry_window_ms)
        data = encode_quickly(item) if message.has_made_key else encode(item)
        return PushResult.of(await self._pushes.ask(data))

    async def push_many(self, messages: Sequence[OutgoingMessage]) -> list[PushResult]:
        """Put messages into queues. Returns a result per message, in order; a refused one has a `problem`.

        ```python
        orders = [OutgoingMessage(queue="orders", payload={"order": n}) for n in range(3)]
        results = await weir.push_many(orders)
        ```
        """
        if self._direct is not None:
            with self.telemetry.operation("send", messages=len(messages)) as trace:
                chained = chained_headers()
                sent = [with_origin(one, trace=trace, chained=chained) for one in messages]
                results = await self._direct.pushes.push_many(sent)
        else:
            bulk = BulkPush(messages, options=self.options, telemetry=self.telemetry, names=self._names)
            results = await bulk.send(self._transport)
        if self.options.queued_operation_behavior == "poll":
            return await self._operations.wait_for_queued(messages, results)
        return results

    async def pop(
        self,
        queue: str | None = None,
        *,
        limit: int = 1,
        wait: Duration = 0,
        lease: Duration | None = None,
        consumer: str | None = None,
    ) -> list[ReceivedMessage]:
        """Take messages under leases; without a queue, from any queue of the environment.

        ```python
        for message in await weir.pop("orders", limit=10, wait=20):
            await weir.ack(message)
        ```

        - `wait`: how long to wait for the first message.
        - `lease`: how long they are yours; by default the lease of the queue. Afterwards others may take
          them.
        - `consumer`: the name of the consumer in the errors of lapsed leases; by default the token's id.
        """
        with self.telemetry.operation("receive", queue=queue):
            messages = await self._deliveries.pop(
                queue,
                limit=limit,
                wait_ms=to_ms(wait),
                lease_ms=to_optional_ms(lease),
                consumer=consumer,
            )
            self.telemetry.note_consumed([message.headers for message in messages], queue=queue)
        return messages

    async def ack(
        self, message: ReceivedMessage, *, result: Payload = None, took: Duration | None = None
    ) -> SettleStatus:
        """Mark the message as done. Returns `acked`, or `queued` while the broker is away.

        ```python
        (message,) = await weir.pop("orders")
        await weir.ack(message, result={"shipped": True})
        ```

        - `result`: a value of JSON, at most 16 kB. `outcome` returns it for a day; None is not kept.
        - `took`: how long the handler ran, for the life of the message. A `Consumer` measures it.
        """
        request = SettleRequest(verb=Verb.ACK, result=result, handler_ms=to_optional_ms(took))
        with self.telemetry.operation("ack", queue=message.queue, origin=message.headers):
            return await self._deliveries.settle(message, request)

    async def ack_many(self, messages: Sequence[ReceivedMessage]) -> list[SettleStatus]:
        """Mark messages as done. Returns their statuses in order: `acked`, `queued`, `lapsed` or `refused`.

        ```python
        await weir.ack_many(await weir.pop("orders", limit=10))
        ```
        """
        statuses: list[SettleStatus] = []
        for at in range(0, len(messages), MAX_BATCH):
            with self.telemetry.operation("ack"):
                statuses += await self._deliveries.ack_many(messages[at : at + MAX_BATCH])
        return statuses

    async def nack(
        self,
        message: ReceivedMessage,
        *,
        error: str = "",
        delay: Duration | None = None,
        dead_letter: bool = False,
        uncounted: bool = False,
        took: Duration | None = None,
    ) -> SettleStatus:
        """Mark the message as failed: it is tried again after `delay`, or is dead with `dead_letter`.

        ```python
        (message,) = await weir.pop("orders")
        await weir.nack(message, error="the bank is closed", delay=60)
        ```

        Without `delay` the back-off of its queue decides. Returns `nacked`, or `dead` after its last attempt.
        With `uncounted` the message counts as not tried, and does not die of this attempt. `took` is how long
        the handler ran.
        """
        request = SettleRequest(
            verb=Verb.DEAD_LETTER if dead_letter else Verb.NACK,
            error=error,
            delay_ms=to_optional_ms(delay),
            uncounted=uncounted,
            handler_ms=to_optional_ms(took),
        )
        with self.telemetry.operation("nack", queue=message.queue, origin=message.headers):
            return await self._deliveries.settle(message, request)

    async def extend(self, message: ReceivedMessage, *, lease: Duration) -> ReceivedMessage:
        """Keep the message for `lease`, counted from now. Raises `ApiError` if the lease is lost.

        ```python
        (message,) = await weir.pop("orders")
        message = await weir.extend(message, lease=60)
        ```
        """
        return await self._deliveries.extend(message, lease_ms=to_ms(lease))

    async def revoked(self, messages: Sequence[ReceivedMessage]) -> list[bool]:
        """Which of these messages were cancelled since they were taken; work on them may stop.

        ```python
        (message,) = await weir.pop("orders")
        (is_cancelled,) = await weir.revoked([message])
        ```

        The server knows this until the lease would have ended. A `Consumer` asks by itself.
        """
        found: set[str] = set()
        for at in range(0, len(messages), MAX_BATCH):
            body = {"leases": [one.reference() for one in messages[at : at + MAX_BATCH]]}
            answer = await self._transport.send(
                "POST", "/api/v1/revoked", body=body, kind=RequestKind.LEASE, member="revoked"
            )
            found.update(answer["revoked"])
        return [message.id in found for message in messages]

    async def progress(self, message: ReceivedMessage, value: Payload) -> None:
        """Tell how far the handler of a message is: a value of JSON, at most 16 kB, for `outcome` to return.

        ```python
        (message,) = await weir.pop("orders")
        await weir.progress(message, {"done": 3, "of": 10})
        ```
        """
        body = {**message.reference(), "progress": value}
        await self._transport.send("POST", "/api/v1/progress", body=body, member="status")

    async def outcome(self, message_id: str, *, wait: Duration = 0) -> MessageOutcome:
        """How a message ended, and its result. `wait` is how long to wait for its end.

        ```python
        outcome = await weir.outcome(message_id, wait=10)
        ```
        """
        answer = await self._transport.send(
            "GET",
            f"{message_path(message_id)}/outcome?wait_ms={to_ms(wait)}",
            timeout_s=to_seconds(wait) + self.options.timeout_s,
            kind=RequestKind.POLL if to_ms(wait) else RequestKind.ORDINARY,
            member="status",
        )
        return MessageOutcome.of(answer)

    async def watch(self, message_id: str, *, timeout: Duration) -> AsyncGenerator[MessageOutcome, None]:
        """Follow a message: how it is now, each change of its state or progress, and its end.

        ```python
        async for outcome in weir.watch(message_id, timeout=60):
            print(outcome.status, outcome.progress)
        ```

        - `timeout`: how long to follow the message. `ended` of the last outcome says whether it has ended.
        """
        http = self._http or new_http_client()
        path = f"{message_path(message_id)}/outcome/stream"
        stream = OutcomeStream(self.options, http, path, timeout_s=to_seconds(timeout))
        try:
            async with aclosing(stream.outcomes()) as outcomes:
                async for outcome in outcomes:
                    yield outcome
        finally:
            if self._http is None:
                await http.aclose()

    async def finish_member(self, group: str, *, member: int, of: int) -> bool:
        """Note that a member of a group is done; returns whether all `of` members are. May be repeated.

        ```python
        complete = await weir.finish_member("import-7", member=0, of=3)
        ```
        """
        body = {"member": member, "of": of}
        path = f"/api/v1/groups/{quote(group, safe='')}/members"
        answer = await self._transport.send("POST", path, body=body, member="complete")
        return bool(answer["complete"])

    async def cancel(self, message_id: str) -> bool:
        """Cancel a message that waits or is worked on. False if it has ended.

        ```python
        await weir.cancel(message_id)
        ```
        """
        try:
            await self._transport.send("POST", f"{message_path(message_id)}/cancel", member="message_id")
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    async def operation(self, operation_id: str) -> Operation:
        """A queued operation as it is now.

        ```python
        operation = await weir.operation(operation_id)
        print(operation.status, operation.queue_position)
        ```
        """
        return await self._operations.find(operation_id)

    async def wait_for_operation(self, operation_id: str, *, timeout: Duration | None = None) -> Operation:
        """Poll until the operation has ended.

        ```python
        await weir.wait_for_operation(operation_id, timeout=60)
        ```

        Raises `OperationFailed` if it failed or was cancelled, and `OperationTimeout` if it takes longer than
        `timeout`, which is the client's `poll_timeout` by default.
        """
        timeout_s = None if timeout is None else to_seconds(timeout)
        return await self._operations.wait(operation_id, timeout_s=timeout_s)

    async def cancel_operation(self, operation_id: str) -> Operation:
        """Cancel an operation that is still pending.

        ```python
        await weir.cancel_operation(operation_id)
        ```
        """
        return await self._operations.change(operation_id, "cancel")

    async def retry_operation(self, operation_id: str) -> Operation:
        """Queue a failed operation again, behind everything that is queued now.

        ```python
        await weir.retry_operation(operation_id)
        ```
        """
        return await self._operations.change(operation_id, "retry")

    async def operation_stats(self) -> dict[str, Any]:
        """The number of waiting operations, and the state of the server.

        ```python
        stats = await weir.operation_stats()
        ```
        """
        return await self._operations.stats()
