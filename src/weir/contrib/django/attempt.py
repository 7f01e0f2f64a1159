"""One attempt at a Django task in a worker: the call, its signals, and the record of it."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import close_old_connections

from weir.contrib.django.interface import (
    DjangoContext,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from weir.contrib.django.record import CallRecord, DjangoCall
from weir.model.handling import Reject
from weir.tasks.context import TaskContext
from weir.workers.threads import DaemonThreads

if TYPE_CHECKING:
    from weir.contrib.django.app import DjangoApp

# A task that runs for longer than this tells that it runs, and in which worker. Shorter ones cost no request.
TELL_AFTER_S = 0.2
_THREADS = DaemonThreads(name="django-task")


class _NeverKept(Reject):
    """The return value cannot be kept. It is a `Reject`, because another attempt would not change that."""


class DjangoAttempt:
    """Runs the function of a task once."""

    def __init__(
        self, app: DjangoApp, found: Any, call: DjangoCall, context: TaskContext, *, max_attempts: int
    ) -> None:
        self._app = app
        self._context = context
        self._max_attempts = max_attempts
        self._finished = False
        self._id = call.id or context.message_id
        self._task = enqueued_task(found, call, queue=context.queue, backend=app.alias)
        self._record = CallRecord(task=context.task, queue=context.queue, call=call)

    async def run(self) -> dict[str, Any]:
        """Run the task; returns the record of the call. A failure is raised, after its record was told."""
        await self._begin()
        loop = asyncio.get_running_loop()
        telling = loop.call_later(TELL_AFTER_S, self._tell)
        try:
            await loop.run_in_executor(_THREADS, partial(copy_context().run, self._run))
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:
            self._tell()
            raise
        finally:
            telling.cancel()
        return self._record.document()

    async def _begin(self) -> None:
        if self._context.attempt > 1:
            told = await self._app.backend().outcome(self._context.message_id)
            before = CallRecord.of(told.progress)
            if before is not None:
                # The record that was told may lack the arguments, if they are large.
                self._record = replace(before, call=self._record.call)
        worker_id = f"{socket.gethostname()}:{os.getpid()}"
        self._record = self._record.attempted(worker_id, attempt=self._context.attempt, now_ms=_now_ms())

    def _tell(self) -> None:
        self._context.progress(self._record.document())

    def _run(self) -> None:
        """Run in a thread, where Django's database may be used. Like a request it has its own connections."""
        close_old_connections()
        try:
            self._send(task_started, TaskResultStatus.RUNNING)
            self._call()
            self._finish(TaskResultStatus.SUCCESSFUL)
        except BaseException as error:
            told = error.__cause__ if isinstance(error, _NeverKept) and error.__cause__ else error
            self._record = self._record.failed(told, now_ms=_now_ms())
            if isinstance(error, Reject) or self._context.attempt >= self._max_attempts:
                self._finish(TaskResultStatus.FAILED)
            raise
        finally:
            close_old_connections()

    def _call(self) -> None:
        value = self._task.call(*self._args(), **self._record.call.kwargs)
        try:
            self._record = self._record.done(normalize_json(value), now_ms=_now_ms())
        except (TypeError, ValueError) as error:
            raise _NeverKept(f"the return value cannot be kept: {error}") from error

    def _finish(self, status: Any) -> None:
        """Send `task_finished` once, even if a receiver raises; not at all if the attempt was cancelled."""
        if self._finished or self._context.cancelled:
            return
        self._finished = True
        self._send(task_finished, status)

    def _send(self, signal: Any, status: Any) -> None:
        signal.send(type(self._task.get_backend()), task_result=self._result(status))

    def _args(self) -> list[Any]:
        given = self._record.call.args
        if not self._task.takes_context:
            return given
        return [DjangoContext(task_result=self._result(TaskResultStatus.RUNNING)), *given]

    def _result(self, status: Any) -> Any:
        return self._record.result(self._id, status, task=self._task)


def enqueued_task(found: Any, call: DjangoCall, *, queue: str, backend: str) -> Any:
    """A task with the options that it was enqueued with."""
    return replace(found, priority=call.priority, run_after=call.moment(), queue_name=queue, backend=backend)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
