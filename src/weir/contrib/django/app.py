"""The app behind a backend: its queues, the tasks that messages name by their module path, and its client."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from django.utils.module_loading import import_string

from weir.client.sync import Weir
from weir.contrib.django.attempt import DjangoAttempt
from weir.contrib.django.interface import DjangoTask
from weir.contrib.django.options import BackendOptions
from weir.contrib.django.record import DjangoCall
from weir.model.durations import to_optional_ms
from weir.tasks.app import App
from weir.tasks.context import TaskContext
from weir.tasks.options import QueueOptions
from weir.tasks.task import Task

log = logging.getLogger("weir.django")


class DjangoApp(App):
    """The queues of one backend, and every task of the project."""

    def __init__(self, alias: str, options: BackendOptions, queues: Iterable[str]) -> None:
        super().__init__(
            options.url,
            token=options.token,
            name=options.app or ("django" if alias == "default" else alias),
            organization=options.organization,
            project=options.project,
            environment=options.environment,
        )
        self.alias = alias
        self._options = options
        wanted = QueueOptions(
            max_attempts=options.max_attempts,
            handler_timeout_ms=to_optional_ms(options.timeout),
        )
        self._queues.update(dict.fromkeys(queues, wanted))

    @property
    def outbox(self) -> str | None:
        """The database whose transactions carry their tasks."""
        return self._options.outbox

    def find_task(self, name: str) -> Task[Any, Any] | None:
        """The task that a message calls by its module path; None if there is none, or it cannot be imported.

        Only functions that are decorated as tasks are called, whatever path a message names.
        """
        if name not in self.tasks:
            found = find_django_task(name)
            if found is None:
                return None
            self.tasks[name] = self._task(name, found)
        return self.tasks[name]

    def _task(self, name: str, found: Any) -> Task[Any, Any]:
        async def run(
            *,
            args: list[Any],
            kwargs: dict[str, Any],
            context: TaskContext,
            priority: int = 0,
            run_after: str | None = None,
            id: str | None = None,  # noqa: A002 the name in the payload
        ) -> Any:
            call = DjangoCall(args=args, kwargs=kwargs, priority=priority, run_after=run_after, id=id)
            attempt = DjangoAttempt(self, found, call, context, max_attempts=self._options.max_attempts)
            return await attempt.run()

        return Task(self, run, name=name, queue=self._queue)

    def api_client(self) -> Weir:
        """A client of the API. A worker on the stores has one too, although its calls go to the broker."""
        return self._client()


def find_django_task(path: str) -> Any:
    """The task of Django at a module path; None if it is not there, or its module fails."""
    try:
        found = import_string(path)
    except Exception as error:  # the module is the user's
        log.warning("the task `%s` cannot be imported: %s", path, error)
        return None
    return found if isinstance(found, DjangoTask) else None
