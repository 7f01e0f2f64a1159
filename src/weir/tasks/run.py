"""Runs one message of an app: finds its task, checks the arguments, calls the function, tells the outcome."""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import structlog

from weir.client.errors import ApiError
from weir.errors import InvalidInput, QueueFull
from weir.model.handling import Reject, Retry, describe_with_traceback
from weir.model.message_headers import SCHEDULE, TASK, WORKFLOW
from weir.spec.spec_problems import nearest
from weir.tasks.app import App
from weir.tasks.context import CURRENT, TaskContext
from weir.tasks.middleware import Attempt, run_through
from weir.tasks.processes import PackedResult, RaisedInProcess
from weir.tasks.task import Task
from weir.tasks.workflows import Workflow, go_on, unwrap
from weir.workers.outcome import (
    BUSY_DELAY_MS,
    UNKNOWN_DELAY_MS,
    Ending,
    HandlerOutcome,
    failed,
    given_back,
    raised,
    rejected,
    waiting,
)

log = structlog.get_logger("weir.tasks")
_HERE = f"{Path(__file__).parents[1]}{os.sep}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMessage:
    """A message as a worker got it, over HTTP or from the broker."""

    queue: str
    message_id: str
    attempt: int
    headers: Mapping[str, str]
    payload: bytes
    key: str | None
    note_progress: Callable[[object], None]


class ProcessCalls(Protocol):
    """Calls a task in another process, which is killed when the call is cancelled."""

    async def call(self, task: str, payload: bytes) -> Any: ...


class AttemptCounts(Protocol):
    """Counts attempts."""

    def note(self, task: str, ending: str, seconds: float) -> None: ...


class TaskRunner:
    """Runs the messages of an app."""

    def __init__(
        self,
        app: App,
        *,
        executor: Executor,
        processes: ProcessCalls | None = None,
        counts: AttemptCounts | None = None,
    ) -> None:
        self._app = app
        self._executor = executor
        self._processes = processes
        self._counts = counts

    async def run(self, message: TaskMessage) -> HandlerOutcome:
        """Run one attempt; returns its outcome. Nothing but a cancellation is raised."""
        name = self._name_of(message)
        task = self._app.find_task(name)
        if task is None:
            return _unknown(name, self._app)
        cancelled: list[bool] = []
        context = TaskContext(
            task=name,
            queue=message.queue,
            message_id=message.message_id,
            attempt=message.attempt,
            headers=message.headers,
            key=message.key,
            is_cancelled=lambda: bool(cancelled),
            note_progress=message.note_progress,
        )
        token = CURRENT.set(context)
        started = time.monotonic()
        ending = "cancelled"
        try:
            outcome = await self._attempt(task, context, message.payload)
            ending = outcome.ending.value
            return outcome
        except asyncio.CancelledError:
            # A thread cannot be stopped, but its task can check `context.cancelled`.
            cancelled.append(True)
            raise
        finally:
            CURRENT.reset(token)
            if self._counts is not None:
                self._counts.note(name, ending, time.monotonic() - started)

    def _name_of(self, message: TaskMessage) -> str:
        """The task that a message calls: named in a header, or by the schedule that pushed it."""
        named = message.headers.get(TASK)
        if named is not None:
            return named
        return self._app.scheduled.get(message.headers.get(SCHEDULE, ""), "")

    async def _attempt(self, task: Task[Any, Any], context: TaskContext, payload: bytes) -> HandlerOutcome:
        try:
            workflow = None
            if WORKFLOW in context.headers:
                payload, workflow = unwrap(payload)
            args, kwargs = task.arguments.unpack(payload)
            if task.arguments.takes_context:
                kwargs["context"] = context
            attempt = Attempt(task=task.name, context=context, args=args, kwargs=kwargs)
            result = await run_through(
                self._app.middleware, attempt, lambda: self._call(task, payload, args, kwargs)
            )
            if workflow is not None:
                packed = result.data if isinstance(result, PackedResult) else None
                dumped = packed or task.arguments.dump_result(result)
                return await self._pass_on(workflow, context, dumped, self._done(task, result))
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except InvalidInput as error:
            return rejected(error.message)
        except (Reject, Retry) as error:
            return raised(error)
        except ApiError as error:
            if error.code == QueueFull.code:
                # A push inside the task found no room. The task may run again, and pushes it once.
                return given_back(str(error), delay_ms=BUSY_DELAY_MS)
            _log_failure(context, exc_info=error)
            return failed(describe_with_traceback(error, skip=_own_frames(error)))
        except RaisedInProcess as error:
            _log_failure(context, traceback=str(error))
            return failed(str(error))
        except BaseException as error:  # user code may raise anything, and must not end the worker
            _log_failure(context, exc_info=error)
            return failed(describe_with_traceback(error, skip=_own_frames(error)))
        return self._done(task, result)

    @staticmethod
    def _done(task: Task[Any, Any], result: Any) -> HandlerOutcome:
        if isinstance(result, PackedResult):
            return HandlerOutcome(ending=Ending.DONE, kept=result.data)
        return HandlerOutcome(ending=Ending.DONE, result=result, kept=task.arguments.pack_result(result))

    async def _pass_on(
        self, workflow: Workflow, context: TaskContext, result: bytes, done: HandlerOutcome
    ) -> HandlerOutcome:
        """Push what comes after a task that is done. While its queue is full, only this is tried again."""
        try:
            await go_on(self._app.backend(), workflow, context, result)
        except ApiError as error:
            if error.code != QueueFull.code:
                raise
            return waiting(str(error), lambda: self._pass_on(workflow, context, result, done))
        return done

    async def _call(
        self, task: Task[Any, Any], payload: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if task.is_async:
            return await task.function(*args, **kwargs)
        if task.in_process and self._processes is not None:
            return await self._processes.call(task.name, payload)
        call = partial(copy_context().run, task.function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


def _log_failure(context: TaskContext, **about: object) -> None:
    log.warning(
        "task failed", task=context.task, message_id=context.message_id, attempt=context.attempt, **about
    )


def _own_frames(error: BaseException) -> int:
    """How many frames of a traceback are Weir's own, before the frames of the task."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((at for at, one in enumerate(frames) if not one.filename.startswith(_HERE)), 0)


def _unknown(name: str, app: App) -> HandlerOutcome:
    """The outcome for an unknown task. It is uncounted: another worker may know it, or this one later."""
    what = f"this worker has no task `{name}`" if name else "the message names no task in `weir-task`"
    error = f"{what}; {nearest(name, app.tasks)}".rstrip("; ")
    return given_back(error, delay_ms=UNKNOWN_DELAY_MS)
