"""Django's interface of tasks: `django.tasks` of Django 6, or the package `django_tasks` before it."""

from __future__ import annotations

from typing import Any

try:
    from django.tasks import TaskContext as DjangoContext
    from django.tasks import TaskResult, TaskResultStatus, exceptions, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task as DjangoTask
    from django.tasks.base import TaskError
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
except ImportError:
    from django_tasks import TaskContext as DjangoContext
    from django_tasks import TaskResult, TaskResultStatus, exceptions, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task as DjangoTask
    from django_tasks.base import TaskError
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

__all__ = [
    "BaseTaskBackend",
    "DjangoContext",
    "DjangoTask",
    "InvalidDjangoTask",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]

# The name of this exception changed between versions.
InvalidDjangoTask: Any = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
TaskResultDoesNotExist: Any = exceptions.TaskResultDoesNotExist
