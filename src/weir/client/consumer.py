"""A consumer: takes messages, renews their leases, runs a handler and settles them by its outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import get_args

from weir.client.cancellations import CancelledMessages
from weir.client.core import AsyncWeir
from weir.client.errors import ApiError, ClientError
from weir.client.telemetry import TraceModeName
from weir.client.values import Payload, ReceivedMessage
from weir.model.asyncio_tasks import cancel_and_wait, run_to_end
from weir.model.durations import Duration, to_seconds
from weir.model.handling import RENEWALS_PER_LEASE, Reject, Retry, describe_failure
from weir.model.parents import WORKING_ON

Handler = Callable[[ReceivedMessage], Awaitable[None]]

LEASE_LOST = "lease_lost"
# So many handlers may wait beside those that have a slot.
MOST_WITHOUT_SLOT = 100
# How long a consumer that stops waits for the answer to its last request for messages.
_LEAVE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """How the handler of a message ended."""

    error: str | None = None
    """None: the message is acked, with `result` if there is one."""
    delay_ms: int | None = None
    dead_letter: bool = False
    uncounted: bool = False
    result: Payload = None
    took_s: float | None = None
    """How long the handler ran; None if that is not known."""


class Consumer:
    """Runs a handler for each message. The message is acked if the handler returns, nacked if it raises.

    ```python
    async def handle(message: ReceivedMessage) -> None:
        if message.json["order"] < 0:
            raise Reject("an order has a positive number")

    consumer = Consumer(weir, "orders", handle, concurrency=8)
    running = asyncio.create_task(consumer.run())
    ...
    consumer.stop()
    await running
    ```

    After an exception the message is tried again, and the back-off of its queue decides when. `Retry` sets
    its own delay, and `Reject` sends the message to the dead letters. Leases are renewed while handlers run.
    A handler whose lease is lost nevertheless is cancelled, because another consumer may have its message. If
    somebody cancels a message, its handler is cancelled within a second, and the message is not tried again.

    - `queue`: where messages come from; None takes them from any queue of the environment.
    - `concurrency`: how many handlers run at once.
    - `lease`: how long the consumer has a message without a renewal. A crash of the consumer delays the
      message by at most this long.
    - `wait`: how long one request waits for messages.
    - `name`: the name of this consumer in the errors of lapsed leases; by default the token's id.
    - `trace`: with the client's `telemetry`, how the span of a handler is joined to the trace that made its
      message: by a `"link"`, or as a `"child"` in the same trace. Workers take it from the queue's spec.

    Messages that a handler pushes are chained from its message: parent and child know each other.
    """

    def __init__(
        self,
        weir: AsyncWeir,
        queue: str | None,
        handler: Handler,
        *,
        concurrency: int = 10,
        lease: Duration = 30.0,
        wait: Duration = 20.0,
        name: str | None = None,
        trace: TraceModeName = "link",
    ) -> None:
        if trace not in get_args(TraceModeName):
            raise ValueError(f"`trace` is {trace!r}; expected one of {', '.join(get_args(TraceModeName))}")
        self._weir = weir
        self._trace = trace
        self._queue = queue
        self._handler = handler
        self._concurrency = concurrency
        self._lease_s = to_seconds(lease)
        self._wait_s = to_seconds(wait)
        self._name = name
        self._running: dict[asyncio.Task[None], ReceivedMessage] = {}
        self._begun: set[str] = set()
        self._without_slot = 0
        self._stopping = asyncio.Event()
        self._cancelled = CancelledMessages(weir)
        self._tells_time = True

    def stop(self) -> None:
        """Take no more messages. `run` returns when the running handlers have ended and are settled.

        ```python
        consumer.stop()
        ```
        """
        self._stopping.set()

    async def run(self) -> None:
        """Consume until `stop`.

        ```python
        asyncio.get_running_loop().call_later(0.1, consumer.stop)
        await consumer.run()
        ```

        While the server is in trouble, `run` waits and tries again; a request that can never succeed raises
        `ApiError`. When `run` is cancelled, handlers are cancelled too, and their messages are nacked at
        once.
        """
        watching = asyncio.create_task(self._cancelled.run(), name="look for cancelled messages")
        try:
            while not self._stopping.is_set():
                free = self._concurrency - len(self._running) + min(self._without_slot, MOST_WITHOUT_SLOT)
                if free <= 0:
                    # The time limit, because a handler may leave its slot before it ends.
                    await asyncio.wait(self._running, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                    continue
                for message in await self._take(free):
                    task = asyncio.create_task(self._work(message))
                    self._running[task] = message
                    task.add_done_callback(self._running.pop)
            if self._running:
                await asyncio.wait(self._running)
        finally:
            await run_to_end(self._end(watching))

    @contextmanager
    def _lend_slot(self) -> Iterator[None]:
        """Let another handler have the slot of this one, which only waits."""
        self._without_slot += 1
        try:
            yield
        finally:
            self._without_slot -= 1

    async def _end(self, watching: asyncio.Task[None]) -> None:
        """Cancel what runs, and give back what never began."""
        waiting = [one for one in self._running.values() if one.id not in self._begun]
        await cancel_and_wait([*self._running, watching])
        await self._give_back(waiting)

    async def _take(self, limit: int) -> list[ReceivedMessage]:
        """Take up to `limit` messages. Returns none after `stop`, or if none came."""
        take = asyncio.create_task(
            self._weir.pop(
                self._queue, limit=limit, wait=self._wait_s, lease=self._lease_s, consumer=self._name
            )
        )
        stop = asyncio.create_task(self._stopping.wait())
        leave = True
        try:
            await asyncio.wait({take, stop}, return_when=asyncio.FIRST_COMPLETED)
            leave = self._stopping.is_set()
            if not leave:
                return await take
        except ClientError as error:
            if isinstance(error, ApiError) and not error.can_pass:
                raise
            await asyncio.sleep(self._weir.options.retry_delay_s)
        finally:
            if leave:
                await run_to_end(self._leave(take))
            await cancel_and_wait([stop])
        return []

    async def _leave(self, take: asyncio.Task[list[ReceivedMessage]]) -> None:
        """End a request for messages. An answer on its way is awaited, and its messages are given back."""
        await asyncio.wait({take}, timeout=_LEAVE_S)
        if not take.done():
            await cancel_and_wait([take])
        elif not take.cancelled() and take.exception() is None:
            await self._give_back(take.result())

    async def _give_back(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            await self._settle(message, Handled(error="the consumer stopped", delay_ms=0, uncounted=True))

    async def _work(self, message: ReceivedMessage) -> None:
        self._begun.add(message.id)
        began_s: list[float] = []
        handling = asyncio.create_task(self._handle_timed(message, began_s))
        keeping = asyncio.create_task(self._keep_lease(message))
        self._cancelled.watch(message, stop=keeping.cancel)
        try:
            await asyncio.wait({handling, keeping}, return_when=asyncio.FIRST_COMPLETED)
            if handling.done():
                await self._settle(message, _ended(handling))
        except asyncio.CancelledError:
            await cancel_and_wait([handling])
            # Without a delay: another consumer can take it now.
            await self._settle(
                message, Handled(error="the consumer stopped", delay_ms=0, uncounted=not began_s)
            )
            raise
        finally:
            self._begun.discard(message.id)
            self._cancelled.forget(message)
            await cancel_and_wait([handling, keeping])

    async def _handle_timed(self, message: ReceivedMessage, began_s: list[float]) -> Handled:
        began_s.append(time.perf_counter())
        handled = await self.handle(message)
        return replace(handled, took_s=time.perf_counter() - began_s[0])

    async def handle(self, message: ReceivedMessage) -> Handled:
        """Run the handler of one message.

        ```python
        (message,) = await weir.pop("orders")
        handled = await consumer.handle(message)
        ```
        """
        WORKING_ON.set(message.id)
        try:
            with self._weir.telemetry.operation(
                "process", queue=message.queue, origin=message.headers, mode=self._trace
            ):
                await self._handler(message)
        except Reject as error:
            return Handled(error=describe_failure(error), dead_letter=True)
        except Retry as error:
            return Handled(error=describe_failure(error), delay_ms=error.delay_ms)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # a poison message must not end the consumer
            return Handled(error=describe_failure(error))
        return Handled()

    async def _keep_lease(self, message: ReceivedMessage) -> None:
        """Renew the lease until it is lost."""
        while True:
            await asyncio.sleep(self._lease_s / RENEWALS_PER_LEASE)
            try:
                await self._weir.extend(message, lease=self._lease_s)
            except ApiError as error:
                if error.code == LEASE_LOST:
                    return
            except Exception:
                # Only a lost lease ends a handler. After any other failure the next renewal may succeed.
                continue

    async def _settle(self, message: ReceivedMessage, handled: Handled) -> None:
        """Ack or nack the message. While that cannot be said its lease lapses, and it is delivered again.

        What the server or the client refuses to send is replaced by what says so.
        """
        try:
            await self._settle_timed(message, handled)
        except ApiError as error:
            if error.can_pass or error.code == LEASE_LOST:
                return
            await self._settle_refused(message, handled, error)
        except ClientError:
            return
        except (
            Exception
        ) as error:  # a value that cannot be written as JSON raises whatever its encoder raises
            await self._settle_refused(message, handled, error)

    async def _settle_refused(self, message: ReceivedMessage, handled: Handled, error: Exception) -> None:
        with suppress(ClientError):
            await self._settle_timed(message, self._outcome_instead(handled, error))

    def _outcome_instead(self, handled: Handled, error: Exception) -> Handled:
        """The outcome that is told instead of one that cannot be told."""
        told = f"the outcome of the handler cannot be settled ({describe_failure(error)})"
        return Handled(error=f"{told}: {handled.error}" if handled.error else told, took_s=handled.took_s)

    async def _settle_timed(self, message: ReceivedMessage, handled: Handled) -> None:
        took = handled.took_s if self._tells_time else None
        try:
            await self._settle_with(message, handled, took=took)
        except ApiError as error:
            # An older server does not accept the time of a handler, so it is not sent again.
            if took is None or error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
            await self._settle_with(message, handled, took=None)
            self._tells_time = False

    async def _settle_with(self, message: ReceivedMessage, handled: Handled, *, took: float | None) -> None:
        if handled.error is None:
            await self._weir.ack(message, result=handled.result, took=took)
            return
        await self._weir.nack(
            message,
            error=handled.error,
            delay=None if handled.delay_ms is None else handled.delay_ms / 1_000,
            dead_letter=handled.dead_letter,
            uncounted=handled.uncounted,
            took=took,
        )


def _ended(handling: asyncio.Task[Handled]) -> Handled:
    """How a handler ended, whatever it raised."""
    if handling.cancelled():
        return Handled(error="the handler was cancelled, and not by the consumer")
    error = handling.exception()
    return handling.result() if error is None else Handled(error=describe_failure(error))
