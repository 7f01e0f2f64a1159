"""A task: a function that can also be called through a queue."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import update_wrapper
from inspect import BoundArguments
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from weir.client.values import OutgoingMessage, PushResult, make_key
from weir.errors import Misconfigured
from weir.model.durations import Duration
from weir.model.message_headers import CHAINED_FROM, TASK
from weir.tasks.arguments import TaskArguments
from weir.tasks.context import CURRENT
from weir.tasks.handle import TaskHandle
from weir.tasks.options import NO_OPTIONS, PushOptions

if TYPE_CHECKING:
    from weir.tasks.app import App

P = ParamSpec("P")
R = TypeVar("R")
Key = Callable[..., str | None]
_IS_JSON = {"content-type": "application/json"}
"""Payloads are pushed as bytes. This header says that they are JSON, so that they are shown as JSON."""


class Task(Generic[P, R]):
    """A function and the queue that it is called through. Calling it is a plain call of the function.

    ```python
    send_email.push("a@example.com", template="welcome")
    send_email("a@example.com", template="welcome")
    ```
    """

    def __init__(
        self,
        app: App,
        function: Callable[P, R],
        *,
        name: str,
        queue: str,
        key: Key | None = None,
        in_process: bool = False,
    ) -> None:
        _check_function(function, task=name)
        self.app = app
        self.function = function
        self.name = name
        self.queue = queue
        self.is_async = inspect.iscoroutinefunction(function)
        self.in_process = in_process
        if in_process and self.is_async:
            raise Misconfigured(f"the task `{name}` is asynchronous; only synchronous ones run in a process")
        self.arguments = TaskArguments(function, task=name)
        if in_process and self.arguments.takes_context:
            raise Misconfigured(
                f"the task `{name}` takes `context` and runs in a process, which has none; leave one out"
            )
        self._key = key
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name} of queue {self.queue}>"

    def options(
        self,
        *,
        key: str | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        ttl: Duration | None = None,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> TaskCall[P, R]:
        """The task with options for its next pushes; `AsyncWeir.push` says what each means.

        ```python
        send_email.options(delay=60, idempotency_key="welcome-7").push("a@example.com", template="welcome")
        ```
        """
        found = PushOptions(
            key=key,
            priority=priority,
            delay=delay,
            deliver_at=deliver_at,
            ttl=ttl,
            idempotency_key=idempotency_key,
            headers=dict(headers or {}),
        )
        return TaskCall(self, found)

    def call(self, *args: Any, **kwargs: Any) -> PreparedCall[R]:
        """A call that is not pushed yet, for `chain`, `group` and `App.push_many`.

        ```python
        chain(resize.call("a.png"), upload.call(bucket="images")).push()
        ```
        """
        return TaskCall(self, NO_OPTIONS).call(*args, **kwargs)

    def push(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """Call the function through its queue, later and in a worker.

        ```python
        handle = send_email.push("a@example.com", template="welcome")
        ```
        """
        return TaskCall(self, NO_OPTIONS).push(*args, **kwargs)

    async def apush(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """`push` for code with an event loop.

        ```python
        handle = await send_email.apush("a@example.com", template="welcome")
        ```
        """
        return await TaskCall(self, NO_OPTIONS).apush(*args, **kwargs)

    def message(
        self, options: PushOptions, args: tuple[Any, ...], kwargs: dict[str, Any], *, partial: bool = False
    ) -> OutgoingMessage:
        """The message of a call. If another task pushes it, a retry of that task does not push it again.

        A `partial` call lacks an argument, which comes later.
        """
        bound = self.arguments.bind(args, kwargs, partial=partial)
        payload = self.arguments.pack(bound, partial=partial)
        return OutgoingMessage(
            queue=self.queue,
            payload=payload,
            key=self._ordering_key(bound) if options.key is None else options.key,
            headers=self._headers(options),
            priority=options.priority,
            delay=options.delay,
            deliver_at=options.deliver_at,
            ttl=options.ttl,
            idempotency_key=self._idempotency_key(options, payload),
        )

    def _ordering_key(self, bound: BoundArguments) -> str | None:
        """The key for these arguments, which are passed by name, with the function's defaults."""
        if self._key is None:
            return None
        return self._key(**self.arguments.by_name(bound))

    def _headers(self, options: PushOptions) -> dict[str, str]:
        context = CURRENT.get()
        lineage = {} if context is None else {CHAINED_FROM: context.message_id}
        return {**_IS_JSON, **lineage, **options.headers, TASK: self.name}

    def _idempotency_key(self, options: PushOptions, payload: bytes) -> str:
        if options.idempotency_key is not None:
            return options.idempotency_key
        context = CURRENT.get()
        return make_key() if context is None else context.push_key(self.name, payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall(Generic[R]):
    """A call that is not pushed yet."""

    task: Task[Any, R]
    options: PushOptions
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def message(self) -> OutgoingMessage:
        """The message that pushes it."""
        return self.task.message(self.options, self.args, self.kwargs)

    def handle(self, message: OutgoingMessage, result: PushResult) -> TaskHandle[R]:
        """The handle, once that message was pushed."""
        return TaskHandle(
            self.task,
            message_id=result.id,
            operation_id=result.operation_id,
            key=message.idempotency_key,
        )


class TaskCall(Generic[P, R]):
    """A task with the options of its pushes; `Task.options` makes it."""

    def __init__(self, task: Task[P, R], options: PushOptions) -> None:
        self._task = task
        self._options = options

    def call(self, *args: Any, **kwargs: Any) -> PreparedCall[R]:
        """A call with these options that is not pushed yet."""
        return PreparedCall(task=self._task, options=self._options, args=args, kwargs=kwargs)

    def push(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """Push a call with these options."""
        call = self.call(*args, **kwargs)
        message = call.message()
        result = self._task.app.wait(lambda backend: backend.push_message(message))
        return call.handle(message, result)

    async def apush(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """`push` for code with an event loop."""
        call = self.call(*args, **kwargs)
        message = call.message()
        result = await self._task.app.backend().push_message(message)
        return call.handle(message, result)


def _check_function(function: Callable[..., Any], *, task: str) -> None:
    """Refuse a function that another process cannot call by its name and arguments alone."""
    if not inspect.isfunction(function):
        kind = "a class" if inspect.isclass(function) else "not a function"
        raise Misconfigured(f"the task `{task}` is {kind}; decorate a function")
    owner = function.__qualname__.rpartition(".")[0]
    if owner and not owner.endswith("<locals>"):
        raise Misconfigured(
            f"the task `{task}` is a method of `{owner}`, and a worker has no object to call it on; move it "
            "out of the class and give it what it needs as arguments"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Misconfigured(f"the task `{task}` yields; a task returns one result, so collect it in a list")
