"""The context of the message that a task works on: pushes that happen once, progress, cancellation, a log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from weir.model.push_keys import PushKeys

# The pause between two values of progress that are sent; a task may tell more.
PROGRESS_EVERY_S = 0.2


class MessageLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that adds the task, the message and the attempt to each line."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        about = self.extra or {}
        kwargs["extra"] = {**about, **(kwargs.get("extra") or {})}
        return f"{msg} [{' '.join(f'{name}={value}' for name, value in about.items())}]", kwargs


@dataclass(slots=True, kw_only=True)
class TaskContext:
    """The message that a task works on. A parameter named `context` gets it.

    ```python
    @app.task()
    def resize(image: str, context: TaskContext) -> None:
        for done in range(10):
            if context.cancelled:
                return
            context.progress({"done": done, "of": 10})
        context.log.info("resized %s", image)
    ```
    """

    task: str
    queue: str
    message_id: str
    attempt: int
    """1 on the first attempt."""
    headers: Mapping[str, str]
    key: str | None = None
    is_cancelled: Callable[[], bool] = field(default=lambda: False, repr=False)
    note_progress: Callable[[object], None] = field(default=lambda value: None, repr=False)
    _keys: PushKeys | None = field(default=None, repr=False)

    @classmethod
    def current(cls) -> TaskContext:
        """The context of the task that runs here; RuntimeError outside of one.

        ```python
        @app.task()
        def resize(image: str) -> None:
            TaskContext.current().progress({"image": image})
        ```
        """
        found = CURRENT.get()
        if found is None:
            raise RuntimeError("no task runs here; a task has a context only while a worker runs it")
        return found

    @property
    def cancelled(self) -> bool:
        """Whether the attempt is over before its task: further work is in vain.

        That is so if somebody cancelled the message, its lease is lost, its time is up or the worker stops.

        ```python
        if context.cancelled:
            return
        ```
        """
        return self.is_cancelled()

    @property
    def log(self) -> MessageLogger:
        """A logger whose lines name the task, the message and the attempt.

        ```python
        context.log.info("sent")
        ```
        """
        about = {"task": self.task, "message_id": self.message_id, "attempt": self.attempt}
        return MessageLogger(logging.getLogger(f"weir.task.{self.task}"), about)

    def progress(self, value: object) -> None:
        """Tell how far the task is: any value of JSON, at most 16 kB. The last one is shown.

        ```python
        context.progress({"done": 3, "of": 10})
        ```
        """
        self.note_progress(value)

    def push_key(self, task: str, payload: bytes) -> str:
        """The idempotency key of a push from inside the task.

        A retried attempt makes the same keys for the same pushes, in whatever order, so none is added twice.
        """
        if self._keys is None:
            self._keys = PushKeys(self.message_id)
        return self._keys.make(task, payload)


CURRENT: ContextVar[TaskContext | None] = ContextVar("weir_task_context", default=None)
"""The context of the task that runs here."""
