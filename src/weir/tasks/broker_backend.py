"""Calls and messages of an app on the broker itself: for workers on the stores, and for tests in memory."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from concurrent.futures import Executor
from contextlib import suppress

from weir.broker.broker import Broker
from weir.client.errors import to_api_error
from weir.client.options import DEFAULTS
from weir.client.outcomes import MessageOutcome
from weir.client.values import OutgoingMessage, PushResult
from weir.errors import NotFound, QueueFull
from weir.model.durations import to_optional_ms
from weir.model.ids import MessageId
from weir.model.inspection import MessageState, Touched
from weir.model.message import Delivery, Enqueue, KeptKind, NewMessage, key_reused
from weir.model.names import EnvironmentRef
from weir.tasks.app import App
from weir.tasks.progress import ProgressSender
from weir.tasks.run import AttemptCounts, ProcessCalls, TaskMessage, TaskRunner
from weir.workers.outcome import Ending, HandlerOutcome
from weir.workers.timeline import Timelines

_LOOK_EVERY_S = 0.05


class BrokerBackend:
    """The backend of calls that go to the broker without the API in between.

    The broker forgets dead messages. Timelines know them; without timelines a dead message is `gone`.
    """

    def __init__(
        self, broker: Broker, environment: EnvironmentRef, *, timelines: Timelines | None = None
    ) -> None:
        self._broker = broker
        self._environment = environment
        self._timelines = timelines

    async def push_message(self, message: OutgoingMessage) -> PushResult:
        queue = self._environment.queue(message.queue)
        (answer,) = await self._broker.enqueue(queue, [_new_message(message)])
        match answer.outcome:
            case Enqueue.ACCEPTED:
                return PushResult(status="accepted", id=answer.message_id)
            case Enqueue.DUPLICATE:
                return PushResult(status="duplicate", id=answer.message_id)
            case Enqueue.KEY_REUSED:
                raise to_api_error(key_reused())
            case Enqueue.FULL | Enqueue.GATED:
                raise to_api_error(QueueFull(f"queue `{message.queue}` takes nothing now; try again"))

    async def push_messages(self, messages: list[OutgoingMessage]) -> list[PushResult]:
        return [await self.push_message(message) for message in messages]

    async def outcome(self, message_id: str, *, wait: float = 0) -> MessageOutcome:
        give_up = time.monotonic() + wait
        while True:
            found = await self._look(MessageId(message_id))
            if found.ended or time.monotonic() >= give_up:
                return found
            await asyncio.sleep(_LOOK_EVERY_S)

    async def watch(self, message_id: str, *, timeout: float) -> AsyncGenerator[MessageOutcome, None]:
        give_up, told = time.monotonic() + timeout, None
        while True:
            found = await self.outcome(message_id)
            if found != told:
                yield found
                told = found
            if found.ended or time.monotonic() >= give_up:
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _look(self, message_id: MessageId) -> MessageOutcome:
        queue = await self._broker.find_message(self._environment, message_id)
        kept = await self._broker.kept(self._environment, message_id)
        value = json.loads(kept.data) if kept is not None and kept.data else None
        if queue is not None:
            detail = await self._broker.show_message(queue, message_id)
            leased = detail is not None and detail.state is MessageState.LEASED
            return MessageOutcome(status="running" if leased else "waiting", progress=value)
        if kept is None or kept.kind is KeptKind.PROGRESS:
            return await self._look_at_end(message_id) or MessageOutcome(status="gone", progress=value)
        if kept.kind is KeptKind.CANCELLED:
            return MessageOutcome(status="cancelled")
        return MessageOutcome(status="done", result=value)

    async def _look_at_end(self, message_id: MessageId) -> MessageOutcome | None:
        """How a message ended that left no result; None if nothing is recorded."""
        if self._timelines is None:
            return None
        # Twice: a dead message is in PostgreSQL before it leaves Redis, so one look can miss it in both.
        for _ in range(2):
            with suppress(NotFound):
                timeline = await self._timelines.of(self._environment, message_id)
                if timeline.has_letter:
                    return MessageOutcome(status="dead", error=timeline.death_error)
                if timeline.state == "held":
                    # It died just now. Its error is known when it is a dead letter.
                    return MessageOutcome(status="running")
        return None

    async def cancel_message(self, message_id: str) -> bool:
        queue = await self._broker.find_message(self._environment, MessageId(message_id))
        if queue is None:
            return False
        (answer,) = await self._broker.cancel(queue, [MessageId(message_id)])
        return answer in (Touched.DONE, Touched.REVOKED)

    async def finish_member(self, group: str, *, member: int, of: int) -> bool:
        return await self._broker.finish_member(self._environment, group, member=member, of=of)

    async def id_of_queued(self, operation_id: str, *, key: str, wait: float) -> str | None:
        raise AssertionError("nothing is queued here")

    async def cancel_queued(self, operation_id: str) -> bool:
        raise AssertionError("nothing is queued here")


class BrokerTasks:
    """Runs the tasks of an app on deliveries of the broker; `weir.workers` calls it."""

    def __init__(
        self,
        app: App,
        broker: Broker,
        *,
        executor: Executor,
        processes: ProcessCalls | None = None,
        counts: AttemptCounts | None = None,
    ) -> None:
        self._broker = broker
        self._runner = TaskRunner(app, executor=executor, processes=processes, counts=counts)

    async def run_delivery(self, delivery: Delivery) -> HandlerOutcome:
        """Run the task of one message; returns the outcome of the attempt."""
        progress: ProgressSender | None = None

        def note(value: object) -> None:
            # Made when it is first needed, because it costs time and most tasks tell nothing.
            nonlocal progress
            progress = progress or ProgressSender(lambda told: self._keep(delivery, told), loop)
            progress.note(value)

        loop = asyncio.get_running_loop()
        called = TaskMessage(
            queue=delivery.queue.queue,
            message_id=delivery.message_id,
            attempt=delivery.attempt,
            headers=delivery.headers,
            payload=delivery.payload,
            key=delivery.key,
            note_progress=note,
        )
        try:
            outcome = await self._runner.run(called)
            if progress is not None and outcome.ending is not Ending.DONE:
                await progress.flush()
            return outcome
        finally:
            if progress is not None:
                progress.stop()

    async def _keep(self, delivery: Delivery, value: object) -> bool:
        return await self._broker.keep_progress(delivery.lease, json.dumps(value).encode())


def _new_message(message: OutgoingMessage) -> NewMessage:
    if not isinstance(message.payload, bytes):
        raise AssertionError("the payload of a task is bytes")
    return NewMessage(
        payload=message.payload,
        key=message.key,
        headers=message.headers,
        priority=message.priority,
        delay_ms=to_optional_ms(message.delay),
        deliver_at_ms=None if message.deliver_at is None else round(message.deliver_at.timestamp() * 1_000),
        ttl_ms=to_optional_ms(message.ttl),
        idempotency_key=message.idempotency_key,
        idempotency_window_ms=DEFAULTS.retry_window_ms if message.has_made_key else None,
    )
