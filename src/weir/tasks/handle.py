"""The handle of a call through a queue: its status, its result, and its end."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar, cast

from weir.client.errors import ClientError
from weir.client.outcomes import MessageOutcome, MessageStatus
from weir.model.durations import Duration, to_seconds
from weir.tasks.arguments import OMITTED, TaskArguments
from weir.tasks.backend import TaskBackend

R = TypeVar("R")
T = TypeVar("T")
# How long one request waits for the end of a message; a longer wait is several requests.
_WAIT_S = 20.0


class CallingApp(Protocol):
    """The part of an app that a handle needs."""

    def backend(self) -> TaskBackend: ...

    def wait(self, work: Callable[[TaskBackend], Coroutine[Any, Any, T]]) -> T: ...

    def watch(self, message_id: str, timeout_s: float) -> Generator[MessageOutcome, None, None]: ...


class CalledTask(Protocol):
    """The part of a task that a handle needs."""

    @property
    def name(self) -> str: ...

    @property
    def arguments(self) -> TaskArguments: ...

    @property
    def app(self) -> CallingApp: ...


class TaskFailed(ClientError):
    """A task ended without a result: it died, or was cancelled. `status` says which, `error` why.

    ```python
    try:
        handle.result(timeout=10)
    except TaskFailed as error:
        print(error.status, error.error)
    ```
    """

    def __init__(self, task: str, message_id: str, status: MessageStatus, error: str | None) -> None:
        self.message_id = message_id
        self.status = status
        self.error = error
        lines = (error or "no reason given").splitlines()
        # A traceback says what happened in its last line, any other error in its first line.
        said = lines[-1] if lines[0].startswith("Traceback") else lines[0]
        super().__init__(f"the task `{task}` of message `{message_id}` is {status}: {said}")


class ResultTimeout(ClientError):
    """A task did not end within the caller's timeout. The task goes on.

    ```python
    try:
        handle.result(timeout=1)
    except ResultTimeout:
        handle.cancel()
    ```
    """


class ResultNotKept(ClientError):
    """A task is done, and its result was not kept: it was too large, or has no JSON form.

    ```python
    try:
        handle.result(timeout=10)
    except ResultNotKept as error:
        print(error)
    ```
    """


class TaskHandle(Generic[R]):
    """A call that was pushed.

    ```python
    handle = send_email.push("a@example.com", template="welcome")
    print(handle.id, handle.status())
    handle.result(timeout=10)
    ```
    """

    def __init__(
        self, task: CalledTask, *, message_id: str | None, operation_id: str | None, key: str
    ) -> None:
        self._task = task
        self._key = key
        self.id = message_id
        """The id of the message; None while the push itself is queued."""
        self.operation_id = operation_id

    def __repr__(self) -> str:
        return f"<handle of {self._task.name}: {self.id or self.operation_id}>"

    def status(self) -> MessageStatus:
        """Where the call is: queued, waiting, running, done, dead, cancelled, or gone.

        ```python
        print(handle.status())
        ```

        `gone`: the call ended, and nothing is recorded. A call that returns None ends like this if a worker
        over HTTP runs it.
        """
        return self._task.app.wait(self._outcome).status

    async def astatus(self) -> MessageStatus:
        """`status` for code with an event loop.

        ```python
        print(await handle.astatus())
        ```
        """
        return (await self._outcome(self._task.app.backend())).status

    def progress(self) -> Any:
        """The last value that the task told with `context.progress`; None if there is none.

        ```python
        print(handle.progress())
        ```
        """
        return self._task.app.wait(self._outcome).progress

    async def aprogress(self) -> Any:
        """`progress` for code with an event loop.

        ```python
        print(await handle.aprogress())
        ```
        """
        return (await self._outcome(self._task.app.backend())).progress

    def watch(self, *, timeout: Duration) -> Generator[MessageOutcome, None, None]:
        """Follow the call: how it is now, each change of its status or progress, and its end.

        ```python
        for outcome in handle.watch(timeout=60):
            print(outcome.status, outcome.progress)
        ```

        It stops at the end of the call or after `timeout`; `ended` of the last outcome says which.
        """
        give_up = time.monotonic() + to_seconds(timeout)
        app = self._task.app
        message_id = app.wait(lambda backend: self._find_id(backend, to_seconds(timeout)))
        if message_id is None:
            yield MessageOutcome(status="queued")
            return
        for found in app.watch(message_id, max(0.0, give_up - time.monotonic())):
            yield self._typed(found)

    async def awatch(self, *, timeout: Duration) -> AsyncGenerator[MessageOutcome, None]:
        """`watch` for code with an event loop.

        ```python
        async for outcome in handle.awatch(timeout=60):
            print(outcome.status, outcome.progress)
        ```
        """
        give_up = time.monotonic() + to_seconds(timeout)
        backend = self._task.app.backend()
        message_id = await self._find_id(backend, to_seconds(timeout))
        if message_id is None:
            yield MessageOutcome(status="queued")
            return
        async with aclosing(backend.watch(message_id, timeout=give_up - time.monotonic())) as outcomes:
            async for found in outcomes:
                yield self._typed(found)

    def result(self, *, timeout: Duration) -> R:
        """Wait for the result. It is kept for a day; a result over 16 kB is not kept.

        ```python
        handle.result(timeout=10)
        ```

        Raises `TaskFailed` if the message died or was cancelled, and `ResultTimeout` after `timeout`.
        """
        give_up = time.monotonic() + to_seconds(timeout)
        return self._task.app.wait(lambda backend: self._result(backend, give_up))

    async def aresult(self, *, timeout: Duration) -> R:
        """`result` for code with an event loop.

        ```python
        await handle.aresult(timeout=10)
        ```
        """
        return await self._result(self._task.app.backend(), time.monotonic() + to_seconds(timeout))

    def cancel(self) -> bool:
        """Cancel the call, even while it runs. Returns False if it is too late.

        ```python
        handle.cancel()
        ```
        """
        return self._task.app.wait(self._cancel)

    async def acancel(self) -> bool:
        """`cancel` for code with an event loop.

        ```python
        await handle.acancel()
        ```
        """
        return await self._cancel(self._task.app.backend())

    async def _outcome(self, backend: TaskBackend, wait_s: float = 0.0) -> MessageOutcome:
        message_id = await self._find_id(backend, wait_s)
        if message_id is None:
            return MessageOutcome(status="queued")
        return await backend.outcome(message_id, wait=wait_s)

    async def _result(self, backend: TaskBackend, give_up: float) -> R:
        while True:
            left_s = give_up - time.monotonic()
            found = await self._outcome(backend, max(0.0, min(left_s, _WAIT_S)))
            if found.status in ("dead", "cancelled"):
                raise TaskFailed(self._task.name, self.id or "", found.status, found.error)
            if found.ended:
                return self._read(found)
            if time.monotonic() >= give_up:
                raise ResultTimeout(
                    f"the task `{self._task.name}` of message `{self.id}` is {found.status} and has not ended"
                )

    def _read(self, found: MessageOutcome) -> R:
        why = found.result.get(OMITTED) if isinstance(found.result, dict) else None
        if why is not None:
            raise ResultNotKept(f"the result of message `{self.id}` was not kept: {why}")
        result: R = self._task.arguments.unpack_result(found.result)
        return result

    def _typed(self, found: MessageOutcome) -> MessageOutcome:
        """An outcome with the result as the function returned it."""
        return replace(found, result=cast(Any, self._read(found))) if found.status == "done" else found

    async def _cancel(self, backend: TaskBackend) -> bool:
        message_id = await self._find_id(backend, 0.0)
        if message_id is None:
            return await backend.cancel_queued(str(self.operation_id))
        return await backend.cancel_message(message_id)

    async def _find_id(self, backend: TaskBackend, wait_s: float) -> str | None:
        """The id of the message. If the push was queued, the id is known when the operation has ended."""
        if self.id is None and self.operation_id is not None:
            self.id = await backend.id_of_queued(self.operation_id, key=self._key, wait=wait_s)
        return self.id
