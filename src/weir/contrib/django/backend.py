"""The backend of `TASKS`: tasks of Django become messages of Weir, and their results come back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

from asgiref.sync import sync_to_async
from django.core import checks
from django.db import connections
from django.utils import timezone
from msgspec.structs import replace

from weir.client.values import OutgoingMessage
from weir.contrib.django.app import DjangoApp, find_django_task
from weir.contrib.django.attempt import enqueued_task
from weir.contrib.django.interface import (
    BaseTaskBackend,
    InvalidDjangoTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
)
from weir.contrib.django.options import BackendOptions, option_problems
from weir.contrib.django.record import CallRecord, DjangoCall
from weir.contrib.django.results import OUTBOX, FoundCall, find_call, queued_id
from weir.contrib.django.transactions import find_in_outbox, push_to_outbox
from weir.model.limits import MAX_PRIORITY
from weir.tasks.options import PushOptions

_LOWEST, _HIGHEST = -100, 100


@cache
def app_of(alias: str, options: BackendOptions, queues: frozenset[str]) -> DjangoApp:
    """The app of a backend. Django makes a backend per thread; the app belongs to the whole process."""
    return DjangoApp(alias, options, sorted(queues))


class WeirBackend(BaseTaskBackend):  # type: ignore[misc]
    """Runs tasks of Django through Weir.

    ```python
    TASKS = {
        "default": {
            "BACKEND": "weir.contrib.django.WeirBackend",
            "QUEUES": ["default", "emails"],
            "OPTIONS": {"max_attempts": 5, "outbox": "default"},
        }
    }
    ```
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._params = params

    @property
    def app(self) -> DjangoApp:
        """The app of this backend; Misconfigured if its options do not fit."""
        return app_of(self.alias, BackendOptions.of(self.options), frozenset(self.queues))

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Push a task: into its queue, or into the outbox if a transaction of that database is open."""
        self.validate_task(task)
        if find_django_task(task.module_path) is None:
            raise InvalidDjangoTask(
                f"a worker would not find `{task.module_path}`; give the task the name of its function"
            )
        call = DjangoCall(
            args=normalize_json(args),
            kwargs=normalize_json(kwargs),
            priority=task.priority,
            run_after=None if task.run_after is None else _aware(task.run_after).isoformat(),
        )
        outbox = self.app.outbox
        if outbox is not None and connections[outbox].in_atomic_block:
            result_id = push_to_outbox(outbox, lambda own: self._message(task, call, own))
        else:
            result_id = self._push(self._message(task, call, None))
        record = CallRecord(task=task.module_path, queue=task.queue_name, call=call)
        result = record.result(result_id, TaskResultStatus.READY, task=task)
        task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """`enqueue` for code with an event loop. With an outbox it runs in the thread of the connection."""
        sensitive = self.app.outbox is not None
        return await sync_to_async(self.enqueue, thread_sensitive=sensitive)(task, args, kwargs)

    def get_result(self, result_id: str) -> Any:
        """The result of a task. It is kept for a day after the task's end."""
        app = self.app
        found = None
        if app.outbox is not None and result_id.startswith(OUTBOX):
            found = find_in_outbox(app.outbox, result_id)
        if found is None:
            found = find_call(app.api_client(), result_id, self.queues)
        if found is None:
            raise TaskResultDoesNotExist(result_id)
        return self._result(result_id, found)

    async def aget_result(self, result_id: str) -> Any:
        """`get_result` for code with an event loop."""
        sensitive = self.app.outbox is not None
        return await sync_to_async(self.get_result, thread_sensitive=sensitive)(result_id)

    def check(self, **kwargs: Any) -> Iterator[Any]:
        """The mistakes in the settings, for `manage.py check`."""
        where = f'TASKS["{self.alias}"]'
        for problem in option_problems(self.options, self.queues):
            yield checks.Error(problem, obj=where, id="weir.E001")
        outbox = self.options.get("outbox")
        if outbox is not None and outbox not in connections:
            yield checks.Error(
                f"`outbox` names `{outbox}`, which is not in `DATABASES`", obj=where, id="weir.E002"
            )
        elif outbox is not None and connections[outbox].vendor != "postgresql":
            yield checks.Error(
                f"the outbox is for PostgreSQL, and `{outbox}` is {connections[outbox].vendor}",
                obj=where,
                id="weir.E003",
            )
        if "ENQUEUE_ON_COMMIT" in self._params:
            yield checks.Warning(
                "nothing reads `ENQUEUE_ON_COMMIT`",
                hint="Set `outbox` in `OPTIONS`, or enqueue in `transaction.on_commit`.",
                obj=where,
                id="weir.W001",
            )

    def _message(self, task: Any, call: DjangoCall, own_id: str | None) -> OutgoingMessage:
        """The message of a call. Inside another task it names its parent, and retries push it only once."""
        found = self.app.find_task(task.module_path)
        assert found is not None
        asked = call.document() | ({} if own_id is None else {"id": own_id})
        options = PushOptions(priority=weir_priority(task.priority), deliver_at=call.moment())
        return replace(found.message(options, (), asked), queue=task.queue_name)

    def _push(self, message: OutgoingMessage) -> str:
        pushed = self.app.wait(lambda backend: backend.push_message(message))
        return pushed.id or queued_id(str(pushed.operation_id))

    def _result(self, result_id: str, found: FoundCall) -> Any:
        record = found.record
        known = find_django_task(record.task)
        if known is None:
            raise TaskResultDoesNotExist(f"{result_id}: this program has no task `{record.task}`")
        task = enqueued_task(known, record.call, queue=record.queue, backend=self.alias)
        return record.result(result_id, found.status, task=task)


def weir_priority(priority: int) -> int:
    """Django's 201 priorities as Weir's ten: -100 is 0, 0 is 4, the default, and 100 is 9."""
    return (int(priority) - _LOWEST) * MAX_PRIORITY // (_HIGHEST - _LOWEST)


def _aware(moment: datetime) -> datetime:
    """A moment with its zone; without `USE_TZ` Django's moments are in the zone of the settings."""
    return (timezone.make_aware(moment) if timezone.is_naive(moment) else moment).astimezone(UTC)
