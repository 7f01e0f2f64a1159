"""The tasks of the project."""

from __future__ import annotations

import time
from typing import Any

from django_tasks import TaskContext, task


@task()
def nothing(*args: Any, **kwargs: Any) -> None:
    return None


@task
def nothing_bare(*args: Any, **kwargs: Any) -> None:
    return None


@task()
async def nothing_async(*args: Any, **kwargs: Any) -> None:
    return None


@task()
def meaning_of_life() -> int:
    return 42


@task()
def fail() -> None:
    raise ValueError("This task failed due to ValueError")


@task()
def leave() -> None:
    raise SystemExit("This task failed due to SystemExit")


@task()
def fail_from_another() -> None:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("then") from error


@task()
def fail_twice_nested() -> None:
    raise ValueError(ValueError("This task failed"))


@task()
def return_a_function() -> Any:
    return lambda: True


@task()
def return_much() -> str:
    return "x" * 20_000


@task()
def echo(*args: Any, **kwargs: Any) -> Any:
    return {"args": args, "kwargs": kwargs}


@task()
def wait(seconds: float) -> None:
    time.sleep(seconds)


@task(takes_context=True)
def own_id(context: TaskContext) -> str:
    return context.task_result.id


@task(takes_context=True)
def own_attempt(context: TaskContext, attempt: int) -> None:
    assert isinstance(context, TaskContext)
    assert context.attempt == attempt


@task(takes_context=True)
def fail_first(context: TaskContext, text: str) -> list[int]:
    if context.attempt == 1:
        raise ValueError("not the first time")
    return [context.attempt, len(text)]


@task()
def enqueue_another() -> str:
    return meaning_of_life.enqueue().id


@task()
async def enqueue_another_async() -> str:
    return (await meaning_of_life.aenqueue()).id


ODD: BaseException | None = None


@task()
def raise_oddly() -> None:
    assert ODD is not None
    raise ODD
