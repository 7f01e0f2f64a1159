"""What django-tasks' own tests ask of a backend, asked of Weir's with a worker that runs.

Its source distribution holds no tests, so these were written from reading those of its repository: each has
the class and the name of the test that it stands for. `..upstream` lists all of them, and why some do not
apply. The queue `default` has a worker, the others have none.
"""

from __future__ import annotations

import dataclasses
import json
import time
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from django.conf import settings
from django.test import SimpleTestCase, override_settings
from django.urls import reverse
from django.utils import timezone
from django.utils.module_loading import import_string
from django_tasks import (
    DEFAULT_TASK_QUEUE_NAME,
    TaskResult,
    TaskResultStatus,
    default_task_backend,
    task,
    task_backends,
)
from django_tasks.backends.immediate import ImmediateBackend
from django_tasks.base import TASK_MAX_PRIORITY, TASK_MIN_PRIORITY, Task
from django_tasks.exceptions import (
    InvalidTaskBackendError,
    InvalidTaskError,
    TaskResultDoesNotExist,
    TaskResultMismatch,
)

import tasks
from weir.contrib.django import WeirBackend

WITHIN_S = 60.0
IDLE = {"queue_name": "idle"}
ONLY_QUEUE_1 = {"default": {"BACKEND": "weir.contrib.django.WeirBackend", "QUEUES": ["queue_1"]}}


def finished(result: TaskResult) -> TaskResult:
    """A result when its task has ended."""
    give_up = time.monotonic() + WITHIN_S
    while not result.is_finished:
        assert time.monotonic() < give_up, result
        time.sleep(0.02)
        result.refresh()
    return result


async def afinished(result: TaskResult) -> TaskResult:
    give_up = time.monotonic() + WITHIN_S
    while not result.is_finished:
        assert time.monotonic() < give_up, result
        await result.arefresh()
    return result


class TaskTestCase(SimpleTestCase):
    """Tasks themselves: `tests/test_tasks.py`."""

    def test_using_correct_backend(self) -> None:
        assert default_task_backend == task_backends["default"]
        assert isinstance(task_backends["default"], WeirBackend)

    def test_task_decorator(self) -> None:
        for one in (tasks.nothing, tasks.nothing_async, tasks.nothing_bare):
            assert isinstance(one, Task)

    def test_enqueue_task(self) -> None:
        result = tasks.nothing.using(**IDLE).enqueue()
        assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [], {})
        assert result.task == tasks.nothing.using(**IDLE)

    async def test_enqueue_task_async(self) -> None:
        result = await tasks.nothing.using(**IDLE).aenqueue()
        assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [], {})
        assert result.task == tasks.nothing.using(**IDLE)

    def test_enqueue_with_invalid_argument(self) -> None:
        with self.assertRaisesMessage(TypeError, "Unsupported type: <class 'datetime.datetime'>"):
            tasks.nothing.enqueue(datetime.now())

    async def test_aenqueue_with_invalid_argument(self) -> None:
        with self.assertRaisesMessage(TypeError, "Unsupported type: <class 'datetime.datetime'>"):
            await tasks.nothing.aenqueue(datetime.now())

    def test_using_priority(self) -> None:
        assert tasks.nothing.using(priority=1).priority == 1
        assert tasks.nothing.priority == 0

    def test_using_queue_name(self) -> None:
        assert tasks.nothing.using(queue_name="queue_1").queue_name == "queue_1"
        assert tasks.nothing.queue_name == DEFAULT_TASK_QUEUE_NAME

    def test_using_run_after(self) -> None:
        now = timezone.now()
        assert tasks.nothing.using(run_after=now).run_after == now
        assert tasks.nothing.run_after is None

    def test_using_unknown_backend(self) -> None:
        with self.assertRaisesMessage(InvalidTaskBackendError, "The connection 'unknown' doesn't exist."):
            tasks.nothing.using(backend="unknown")

    def test_using_missing_backend(self) -> None:
        missing = {**settings.TASKS, "missing": {"BACKEND": "does.not.exist"}}
        said = "Could not find backend 'does.not.exist'"
        with override_settings(TASKS=missing), self.assertRaisesMessage(InvalidTaskBackendError, said):
            tasks.nothing.using(backend="missing")

    def test_using_creates_new_instance(self) -> None:
        new = tasks.nothing.using()
        assert new == tasks.nothing
        assert new is not tasks.nothing

    def test_chained_using(self) -> None:
        now = timezone.now()
        later = tasks.nothing.using(run_after=now)
        first = later.using(priority=10)
        assert (later.run_after, later.priority) == (now, 0)
        assert (first.run_after, first.priority) == (now, 10)

    async def test_refresh_result(self) -> None:
        result = await tasks.nothing.using(**IDLE).aenqueue()
        before = dataclasses.asdict(result)
        result.refresh()
        assert dataclasses.asdict(result) == before
        await result.arefresh()
        assert dataclasses.asdict(result) == before

    def test_naive_datetime(self) -> None:
        with self.assertRaisesMessage(InvalidTaskError, "run_after must be an aware datetime"):
            tasks.nothing.using(run_after=datetime.now())

    def test_invalid_priority(self) -> None:
        said = f"priority must be a whole number between {TASK_MIN_PRIORITY} and {TASK_MAX_PRIORITY}"
        wrong: list[Any] = [-101, 101, 3.1]
        for priority in wrong:
            with self.assertRaisesMessage(InvalidTaskError, said):
                tasks.nothing.using(priority=priority)
        for priority in (100, -100, 0):
            tasks.nothing.using(priority=priority)

    def test_unknown_queue_name(self) -> None:
        with self.assertRaisesMessage(InvalidTaskError, "Queue 'queue-2' is not valid for backend"):
            tasks.nothing.using(queue_name="queue-2")
        open_to_all = {"default": {"BACKEND": "weir.contrib.django.WeirBackend", "QUEUES": []}}
        with override_settings(TASKS=open_to_all):
            assert tasks.nothing.using(queue_name="queue-2").queue_name == "queue-2"

    def test_call_task(self) -> None:
        assert tasks.meaning_of_life.call() == 42

    async def test_call_task_async(self) -> None:
        assert await tasks.meaning_of_life.acall() == 42

    async def test_call_async_task(self) -> None:
        assert await tasks.nothing_async.acall() is None

    def test_call_async_task_sync(self) -> None:
        assert tasks.nothing_async.call() is None

    def test_get_result(self) -> None:
        result = default_task_backend.enqueue(tasks.nothing.using(**IDLE), (), {})
        assert tasks.nothing.get_result(result.id) == result

    async def test_get_result_async(self) -> None:
        result = await default_task_backend.aenqueue(tasks.nothing.using(**IDLE), (), {})
        assert await tasks.nothing.aget_result(result.id) == result

    async def test_get_missing_result(self) -> None:
        missing = ["123", "019e0000-0000-7000-8000-000000000000", "operation:123", "outbox:123", "\x00"]
        for one in missing:
            with pytest.raises(TaskResultDoesNotExist):
                tasks.nothing.get_result(one)
            with pytest.raises(TaskResultDoesNotExist):
                await tasks.nothing.aget_result(one)

    def test_get_incorrect_result(self) -> None:
        result = default_task_backend.enqueue(tasks.nothing_async.using(**IDLE), (), {})
        with self.assertRaisesMessage(TaskResultMismatch, "Task does not match"):
            tasks.nothing.get_result(result.id)

    async def test_get_incorrect_result_async(self) -> None:
        result = await default_task_backend.aenqueue(tasks.nothing_async.using(**IDLE), (), {})
        with self.assertRaisesMessage(TaskResultMismatch, "Task does not match"):
            await tasks.nothing.aget_result(result.id)

    def test_invalid_function(self) -> None:
        wrong: list[Any] = [any, self.test_invalid_function]
        for one in wrong:
            with self.assertRaisesMessage(
                InvalidTaskError, "Task function must be defined at a module level"
            ):
                task()(one)

    def test_get_backend(self) -> None:
        assert isinstance(tasks.nothing.get_backend(), WeirBackend)
        assert isinstance(tasks.nothing.using(backend="immediate").get_backend(), ImmediateBackend)

    def test_name(self) -> None:
        assert (tasks.nothing.name, tasks.nothing_async.name) == ("nothing", "nothing_async")

    def test_module_path(self) -> None:
        for one in (tasks.nothing, tasks.nothing_async):
            assert import_string(one.module_path) is one

    @override_settings(TASKS={})
    def test_no_backends(self) -> None:
        with pytest.raises(InvalidTaskBackendError):
            tasks.nothing.enqueue()

    def test_task_error_invalid_exception(self) -> None:
        (error,) = finished(tasks.fail.enqueue()).errors
        object.__setattr__(error, "exception_class_path", "subprocess.run")
        with self.assertRaisesMessage(ValueError, "'subprocess.run' does not reference a valid exception."):
            _ = error.exception_class

    def test_task_error_unknown_module(self) -> None:
        (error,) = finished(tasks.fail.enqueue()).errors
        object.__setattr__(error, "exception_class_path", "does.not.exist")
        with pytest.raises(ImportError):
            _ = error.exception_class

    def test_takes_context_without_taking_context(self) -> None:
        said = "Task takes context but does not have a first argument of 'context'"
        with self.assertRaisesMessage(InvalidTaskError, said):
            task(takes_context=True)(tasks.meaning_of_life.func)


class DummyBackendTestCase(SimpleTestCase):
    """Tasks that nobody works on: `tests/test_dummy_backend.py`."""

    def _check_waiting(
        self, result: TaskResult, asked: Task, args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        assert result.status == TaskResultStatus.READY
        assert not result.is_finished
        assert result.enqueued_at is not None
        assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
        with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
            _ = result.return_value
        assert (result.task, result.args, result.kwargs, result.attempts) == (asked, args, kwargs, 0)

    def test_using_correct_backend(self) -> None:
        assert (default_task_backend.alias, default_task_backend.options) == ("default", {})

    def test_enqueue_task(self) -> None:
        for one in (tasks.nothing.using(**IDLE), tasks.nothing_async.using(**IDLE)):
            result = one.enqueue(1, two=3)
            self._check_waiting(result, one, [1], {"two": 3})
            self._check_waiting(one.get_result(result.id), one, [1], {"two": 3})

    async def test_enqueue_task_async(self) -> None:
        for one in (tasks.nothing.using(**IDLE), tasks.nothing_async.using(**IDLE)):
            self._check_waiting(await one.aenqueue(), one, [], {})

    def test_get_result(self) -> None:
        result = default_task_backend.enqueue(tasks.nothing.using(**IDLE), (), {})
        assert default_task_backend.get_result(result.id) == result

    async def test_get_result_async(self) -> None:
        result = await default_task_backend.aenqueue(tasks.nothing.using(**IDLE), (), {})
        assert await default_task_backend.aget_result(result.id) == result

    def test_refresh_result(self) -> None:
        result = default_task_backend.enqueue(tasks.meaning_of_life, (), {})
        assert result.status == TaskResultStatus.READY
        assert finished(result).status == TaskResultStatus.SUCCESSFUL

    async def test_refresh_result_async(self) -> None:
        result = await default_task_backend.aenqueue(tasks.meaning_of_life, (), {})
        assert result.status == TaskResultStatus.READY
        assert (await afinished(result)).status == TaskResultStatus.SUCCESSFUL

    async def test_get_missing_result(self) -> None:
        with pytest.raises(TaskResultDoesNotExist):
            default_task_backend.get_result("123")
        with pytest.raises(TaskResultDoesNotExist):
            await default_task_backend.aget_result("123")

    def test_meaning_of_life_view(self) -> None:
        for url in (reverse("meaning-of-life"), reverse("meaning-of-life-async")):
            data = json.loads(self.client.get(url, {"queue": "idle"}).content)
            assert (data["result"], data["status"]) == (None, TaskResultStatus.READY)
            assert default_task_backend.get_result(data["result_id"]).status == TaskResultStatus.READY

    def test_get_result_from_different_request(self) -> None:
        asked = json.loads(self.client.get(reverse("meaning-of-life"), {"queue": "idle"}).content)
        answer = self.client.get(reverse("result", args=[asked["result_id"]]))
        assert json.loads(answer.content) == asked

    def test_enqueue_logs(self) -> None:
        with self.assertLogs("django_tasks", level="DEBUG") as logs:
            result = tasks.nothing.using(**IDLE).enqueue()
        (line,) = logs.output
        assert "enqueued" in line
        assert result.id in line

    def test_errors(self) -> None:
        assert tasks.nothing.using(**IDLE).enqueue().errors == []

    def test_validate_disallowed_async_task(self) -> None:
        with (
            mock.patch.multiple(default_task_backend, supports_async_task=False),
            self.assertRaisesMessage(InvalidTaskError, "Backend does not support async tasks"),
        ):
            default_task_backend.validate_task(tasks.nothing_async)

    def test_check(self) -> None:
        assert list(default_task_backend.check()) == []

    def test_takes_context(self) -> None:
        assert tasks.own_id.using(**IDLE).enqueue().status == TaskResultStatus.READY

    def test_validate_on_enqueue(self) -> None:
        unknown = tasks.nothing.using(**IDLE)
        said = "Queue 'idle' is not valid for backend"
        with override_settings(TASKS=ONLY_QUEUE_1), self.assertRaisesMessage(InvalidTaskError, said):
            unknown.enqueue()

    async def test_validate_on_aenqueue(self) -> None:
        unknown = tasks.nothing.using(**IDLE)
        said = "Queue 'idle' is not valid for backend"
        with override_settings(TASKS=ONLY_QUEUE_1), self.assertRaisesMessage(InvalidTaskError, said):
            await unknown.aenqueue()


class ImmediateBackendTestCase(SimpleTestCase):
    """Tasks that are run: `tests/test_immediate_backend.py`."""

    def _check_times(self, result: TaskResult) -> None:
        assert result.enqueued_at is not None
        assert result.started_at is not None
        assert result.last_attempted_at is not None
        assert result.finished_at is not None
        # Two processes on one machine: the API made the first time, the worker the others.
        assert result.enqueued_at <= result.started_at + timedelta(milliseconds=5)
        assert result.started_at <= result.finished_at

    def test_enqueue_task(self) -> None:
        for one in (tasks.nothing, tasks.nothing_async):
            result = finished(one.enqueue(1, two=3))
            assert result.status == TaskResultStatus.SUCCESSFUL
            self._check_times(result)
            assert result.return_value is None
            assert (result.task, result.args, result.kwargs, result.attempts) == (one, [1], {"two": 3}, 1)

    async def test_enqueue_task_async(self) -> None:
        for one in (tasks.nothing, tasks.nothing_async):
            result = await afinished(await one.aenqueue())
            assert result.status == TaskResultStatus.SUCCESSFUL
            self._check_times(result)
            assert result.return_value is None
            assert (result.task, result.args, result.kwargs, result.attempts) == (one, [], {}, 1)

    def test_catches_exception(self) -> None:
        for one, kind in ((tasks.fail, ValueError), (tasks.leave, SystemExit)):
            result = finished(one.enqueue())
            assert result.status == TaskResultStatus.FAILED
            with self.assertRaisesMessage(ValueError, "Task failed"):
                _ = result.return_value
            self._check_times(result)
            (error,) = result.errors
            assert error.exception_class is kind
            said = f"{kind.__name__}: This task failed due to {kind.__name__}\n"
            assert error.traceback.endswith(said), error.traceback
            assert (result.task, result.args, result.kwargs) == (one, [], {})

    def test_complex_exception(self) -> None:
        result = finished(tasks.fail_twice_nested.enqueue())
        assert result.status == TaskResultStatus.FAILED
        self._check_times(result)
        assert result._return_value is None
        assert result.errors[0].exception_class is ValueError
        assert 'ValueError(ValueError("This task failed"))' in result.errors[0].traceback

    def test_complex_return_value(self) -> None:
        result = finished(tasks.return_a_function.enqueue())
        assert result.status == TaskResultStatus.FAILED
        self._check_times(result)
        assert result._return_value is None
        assert result.errors[0].exception_class is TypeError
        assert "Unsupported type" in result.errors[0].traceback

    def test_result(self) -> None:
        result = finished(default_task_backend.enqueue(tasks.meaning_of_life, [], {}))
        assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 42)

    async def test_result_async(self) -> None:
        result = await afinished(await default_task_backend.aenqueue(tasks.meaning_of_life, [], {}))
        assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 42)

    def test_meaning_of_life_view(self) -> None:
        for url in (reverse("meaning-of-life"), reverse("meaning-of-life-async")):
            asked = json.loads(self.client.get(url).content)
            finished(default_task_backend.get_result(asked["result_id"]))
            shown = json.loads(self.client.get(reverse("result", args=[asked["result_id"]])).content)
            assert shown == {**asked, "result": 42, "status": TaskResultStatus.SUCCESSFUL}

    def test_takes_context(self) -> None:
        result = finished(tasks.own_id.enqueue())
        assert result.return_value == result.id

    def test_context(self) -> None:
        assert finished(tasks.own_attempt.enqueue(1)).status == TaskResultStatus.SUCCESSFUL


class BeyondTestCase(SimpleTestCase):
    """What a backend with a worker of its own promises beside that."""

    def test_a_task_does_not_run_before_run_after(self) -> None:
        moment = timezone.now() + timedelta(seconds=1.5)
        result = finished(tasks.nothing.using(run_after=moment).enqueue())
        assert result.started_at is not None
        assert result.started_at >= moment - timedelta(milliseconds=5)
        assert result.task.run_after == moment

    def test_a_running_task_says_so_with_its_worker(self) -> None:
        result = tasks.wait.enqueue(3)
        give_up = time.monotonic() + WITHIN_S
        while not (result.status == TaskResultStatus.RUNNING and result.worker_ids):
            assert time.monotonic() < give_up
            assert not result.is_finished
            result.refresh()
        assert (result.attempts, result.finished_at) == (1, None)
        assert result.started_at is not None

    def test_priority_and_arguments_come_back(self) -> None:
        result = finished(tasks.echo.using(priority=50).enqueue([1, {"a": None}], b=True))
        assert result.return_value == {"args": [[1, {"a": None}]], "kwargs": {"b": True}}
        assert result.task.priority == 50

    def test_a_return_value_that_cannot_be_kept_fails_the_task(self) -> None:
        (error,) = finished(tasks.return_much.enqueue()).errors
        assert error.exception_class is ValueError
        assert "at most 16384 are kept" in error.traceback

    def test_arguments_too_large_for_a_result_still_reach_the_task(self) -> None:
        result = finished(tasks.echo.enqueue("y" * 6_000, "z" * 6_000))
        assert len(result.return_value["args"][1]) == 6_000

    def test_an_error_is_told_with_the_one_that_it_came_from(self) -> None:
        (error,) = finished(tasks.fail_from_another.enqueue()).errors
        assert error.exception_class is ValueError
        assert "KeyError: 'first'" in error.traceback

    def test_tasks_enqueue_tasks(self) -> None:
        for one in (tasks.enqueue_another, tasks.enqueue_another_async):
            inner = finished(one.enqueue()).return_value
            assert finished(default_task_backend.get_result(inner)).return_value == 42
