"""The worker over HTTP: one consumer per queue of the app, with nothing but a URL and a token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import cast

from weir.client.consumer import Consumer, Handled
from weir.client.core import AsyncWeir
from weir.client.places import MAX_CONNECTIONS, MAX_POLLS
from weir.client.values import Payload, ReceivedMessage
from weir.errors import InvalidInput
from weir.model.asyncio_tasks import cancel_and_wait
from weir.spec.ir import QueueSpec
from weir.tasks.arguments import omitted
from weir.tasks.progress import ProgressSender
from weir.tasks.run import TaskMessage, TaskRunner
from weir.workers.handler_time import begin_handler_time
from weir.workers.outcome import PASS_ON_EVERY_S, Ending, HandlerOutcome, timed_out

# How long one request waits for messages. A worker that drains does not wait for the request.
_WAIT_S = 20.0
# Connections for other requests, of the worker and of the tasks that push, and files of the program.
_OTHER_FILES = 4 * MAX_CONNECTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpWorkerOptions:
    """The options of a worker over HTTP."""

    name: str
    concurrency: int
    """How many tasks of each queue run at once."""
    drain_s: float


class TaskConsumer(Consumer):
    """A consumer whose messages call tasks."""

    def __init__(
        self,
        weir: AsyncWeir,
        queue: QueueSpec,
        runner: TaskRunner,
        options: HttpWorkerOptions,
    ) -> None:
        super().__init__(
            weir,
            queue.name,
            self._never,
            concurrency=options.concurrency,
            lease=timedelta(milliseconds=queue.delivery.lease_ms),
            wait=_WAIT_S,
            name=options.name,
        )
        self._runner = runner
        self._timeout_ms = queue.delivery.handler_timeout_ms

    async def handle(self, message: ReceivedMessage) -> Handled:
        """Run the task of one message."""
        outcome = await self._run(message)
        if outcome.ending is Ending.DONE:
            return Handled(result=None if outcome.kept is None else _told(outcome.kept))
        return Handled(
            error=outcome.error,
            delay_ms=outcome.delay_ms,
            dead_letter=outcome.ending is Ending.REJECTED,
            uncounted=outcome.uncounted,
        )

    def _outcome_instead(self, handled: Handled, error: Exception) -> Handled:
        """What is told instead: a task whose result cannot be sent is done, as on the stores."""
        if handled.error is None:
            return replace(handled, result=_not_kept(error))
        return super()._outcome_instead(handled, error)

    async def _run(self, message: ReceivedMessage) -> HandlerOutcome:
        progress = ProgressSender(
            lambda value: self._weir.progress(message, cast(Payload, value)), asyncio.get_running_loop()
        )
        called = TaskMessage(
            queue=message.queue,
            message_id=message.id,
            attempt=message.attempt,
            headers=message.headers,
            payload=message.payload,
            key=message.key,
            note_progress=progress.note,
        )
        outcome = await self._attempt(called, progress)
        with self._lend_slot():
            while outcome.pass_on is not None:
                await asyncio.sleep(PASS_ON_EVERY_S)
                outcome = await outcome.pass_on()
        return outcome

    async def _attempt(self, called: TaskMessage, progress: ProgressSender) -> HandlerOutcome:
        limit = begin_handler_time(self._timeout_ms)
        running = self._runner.run(called)
        try:
            outcome = await (running if limit is None else limit.bound(running))
            if outcome.ending is not Ending.DONE:
                await progress.flush()
            return outcome
        except TimeoutError:
            return timed_out(self._timeout_ms)
        finally:
            progress.stop()

    @staticmethod
    async def _never(message: ReceivedMessage) -> None:
        raise AssertionError("tasks are run by `handle`")


def check_queue_count(count: int, *, max_files: int) -> None:
    """Refuse more queues than one worker can ask at once: each long poll has its own connection."""
    if count > MAX_POLLS:
        raise InvalidInput(
            f"the worker would serve {count} queues, and over HTTP one worker serves at most {MAX_POLLS}; "
            "start several workers, each with some of the queues by `--queue`"
        )
    needed = count + _OTHER_FILES
    if needed > max_files:
        raise InvalidInput(
            f"{count} queues need {needed} open files, and the system allows {max_files}; raise the limit "
            "(`ulimit -n`), or start several workers, each with some of the queues by `--queue`"
        )


def _told(kept: bytes) -> Payload:
    try:
        return cast(Payload, json.loads(kept))
    except ValueError as error:  # a number of more digits than Python reads
        return _not_kept(error)


def _not_kept(error: Exception) -> Payload:
    return cast(Payload, json.loads(omitted(f"it cannot be sent ({error})")))


async def consume(consumers: Sequence[Consumer], *, drain_s: float) -> None:
    """Consume until cancelled; then let running tasks end within the drain time."""
    running = [asyncio.create_task(consumer.run()) for consumer in consumers]
    try:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for consumer in consumers:
            consumer.stop()
        with suppress(asyncio.CancelledError):
            await asyncio.wait(running, timeout=drain_s)
        await cancel_and_wait(running)
