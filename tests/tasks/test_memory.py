"""Tasks in memory: what users write in their tests, and what every backend promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID, uuid4

import pytest
from pydantic import ValidationError

from tasks import shop
from weir import App, ResultNotKept, TaskContext, TaskFailed
from weir.errors import Misconfigured
from weir.model.message_headers import CHAINED_FROM, TASK
from weir.tasks.middleware import Attempt, Run
from weir.testing import MemoryTasks, eager
from weir.testing.fixtures import memory_tasks

__all__ = ["memory_tasks"]
HOME = shop.Address(street="Main", since=datetime(2026, 1, 2, 3, 4, tzinfo=UTC))
PARCEL = shop.Parcel(weight=Decimal("1.10"), size=shop.Size.LARGE)


def test_a_task_stays_a_plain_function() -> None:
    assert shop.label("a", copies=3) == "aaa"
    assert asyncio.run(shop.ship(PARCEL, HOME)).total == Decimal("2.20")


def test_arguments_and_results_come_back_as_themselves() -> None:
    with eager(shop.app):
        handle = shop.ship.push(PARCEL, HOME, "fragile", "heavy", urgent=True, floor=3)
        result = handle.result(timeout=5)
        assert handle.status() == "done"
    assert result == shop.Receipt(number=UUID(int=7), total=Decimal("2.20"), made_at=HOME.since)


def test_a_call_in_memory_is_followed_too() -> None:
    with MemoryTasks(shop.app) as tasks:
        handle = shop.label.push("a", copies=2)
        assert [one.status for one in handle.watch(timeout=0)] == ["waiting"]
        tasks.run()
        assert [(one.status, one.result) for one in handle.watch(timeout=1)] == [("done", "aa")]


@pytest.mark.parametrize(
    "value",
    [
        uuid4(),
        Decimal("1.10"),
        datetime.now(UTC),
        timedelta(seconds=5),
        b"\x00\xff",
        2**80,
        float("inf"),
        "ü",
    ],
)
def test_values_survive_the_queue(value: object) -> None:
    app = App()

    def keep(given: object) -> object:
        found.append(given)
        return given

    keep.__annotations__ = {"given": type(value), "return": type(value)}
    task = app.task(keep)
    found: list[object] = []
    with eager(app):
        result = task.push(value).result(timeout=5)
    assert found == [value]
    assert result == value


def test_arguments_are_checked_where_they_are_pushed() -> None:
    with eager(shop.app):
        with pytest.raises(TypeError, match=r"label\(\) missing a required argument: 'text'"):
            shop.label.push()  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
            shop.label.push("a", colour="red")  # type: ignore[call-arg]
        with pytest.raises(ValidationError, match="copies"):
            shop.label.push("a", copies="many")  # type: ignore[arg-type]


def test_methods_generators_and_doubled_names_are_refused_with_a_reason() -> None:
    app = App()

    class Mailer:
        def send(self, to: str) -> None: ...

    # A class at the top of a module, as users have it.
    Mailer.send.__qualname__ = "Mailer.send"
    with pytest.raises(Misconfigured, match="move it out of the class"):
        app.task(Mailer.send)
    with pytest.raises(Misconfigured, match="not a function"):
        app.task(Mailer().send)
    with pytest.raises(Misconfigured, match="yields"):
        app.task(lambda: (yield 1))
    with pytest.raises(Misconfigured, match="a lambda has no name"):
        app.task(lambda: None)

    @app.task
    def once() -> None: ...

    with pytest.raises(Misconfigured, match="two tasks `once`"):
        app.task(once.function)


def test_a_type_that_cannot_go_through_a_queue_is_refused() -> None:
    class Socket: ...

    def talk(to: Socket) -> None: ...

    talk.__annotations__ = {"to": Socket}
    with pytest.raises(Misconfigured, match="cannot go through a queue"):
        App().task(talk)


def test_tasks_of_one_queue_may_not_differ_in_its_options() -> None:
    app = App()
    app.task(queue="mail", max_attempts=3, name="one")(lambda: None)
    app.task(queue="mail", name="two", timeout=5)(lambda: None)
    with pytest.raises(
        Misconfigured, match="`three` wants `max_attempts` 4 of the queue `mail`, which has 3"
    ):
        app.task(queue="mail", max_attempts=4, name="three")(lambda: None)
    (queue,) = app.spec().queues
    assert (queue.delivery.max_attempts, queue.delivery.handler_timeout_ms) == (3, 5_000)


def test_a_retried_attempt_does_not_push_twice() -> None:
    with MemoryTasks(shop.app) as tasks:
        handle = shop.fail_twice.push("x")
        # Three attempts, each of which pushes the same label.
        assert tasks.advance(10) == 3 + 1
        assert handle.result(timeout=5) == 3


def test_a_push_from_inside_a_task_carries_its_lineage() -> None:
    app = App()
    seen: list[dict[str, str]] = []

    @app.task
    def inner(context: TaskContext) -> None:
        seen.append(dict(context.headers))

    @app.task
    def outer() -> None:
        inner.push()

    with eager(app):
        handle = outer.push()
    assert seen == [{TASK: "inner", CHAINED_FROM: handle.id, "content-type": "application/json"}]


def test_a_delay_and_a_retry_wait_for_the_clock() -> None:
    with MemoryTasks(shop.app) as tasks:
        late = shop.label.options(delay=60, priority=7).push("late")
        again = shop.come_back.push()
        assert (tasks.advance(29), late.status(), again.status()) == (1, "waiting", "waiting")
        assert (tasks.advance(1), again.result(timeout=1)) == (1, 2)
        assert (tasks.advance(30), late.result(timeout=1)) == (1, "late")


def test_a_rejected_task_is_dead_and_its_result_says_so() -> None:
    with eager(shop.app) as tasks:
        handle = shop.refuse.push("x")
        with pytest.raises(TaskFailed, match=r"is dead: .*never x"):
            handle.result(timeout=1)
        assert [dead.message_id for dead in tasks.dead] == [handle.id]


def test_a_failure_keeps_the_traceback_of_the_task_alone() -> None:
    app = App()

    @app.task(max_attempts=1)
    def broken() -> None:
        raise ValueError("no")

    with eager(app) as tasks:
        broken.push()
    lines = tasks.dead[0].error.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "in broken" in lines[1]
    assert lines[-1] == "ValueError: no"


def test_an_idempotency_key_is_pushed_once() -> None:
    with MemoryTasks(shop.app) as tasks:
        first, second = (shop.label.options(idempotency_key="one").push("a") for _ in range(2))
        assert first.id == second.id
        assert tasks.run() == 1


def test_a_list_of_calls_is_pushed_in_order_with_a_handle_for_each() -> None:
    calls = [shop.label.call("a", copies=2), shop.label.options(idempotency_key="once").call("b")]
    with eager(shop.app):
        handles = shop.app.push_many([*calls, *calls[1:]])
        assert [handle.result(timeout=5) for handle in handles[:2]] == ["aa", "b"]
        assert handles[2].id == handles[1].id
        assert shop.app.push_many([]) == []
        with pytest.raises(ValidationError):
            shop.app.push_many([calls[0], shop.label.call("a", copies="many")])


def test_a_key_is_made_from_the_arguments() -> None:
    app = App()
    keys: list[str | None] = []

    @app.task(ordering="per_key", key=lambda to, **_: to)
    def send(to: str, template: str, context: TaskContext) -> None:
        keys.append(context.key)

    with eager(app):
        send.push("a@example.com", template="welcome")  # type: ignore[call-arg]
        send.options(key="other").push("a@example.com", template="welcome")  # type: ignore[call-arg]
    assert keys == ["a@example.com", "other"]


def test_an_unknown_task_is_retried_and_not_killed() -> None:
    old, new = App(), App()
    old.task(name="gone", queue="q", max_attempts=1)(lambda: None)
    new.task(name="here", queue="q", max_attempts=1)(lambda: None)
    with MemoryTasks(new) as tasks:
        tasks.app.redirect(None)
        old.redirect(tasks._backend, tasks.wait)
        handle = old.tasks["gone"].push()
        tasks.advance(60)
        assert tasks.dead == []
        assert handle.status() == "waiting"


def test_a_result_that_is_too_large_is_not_kept_and_says_so() -> None:
    with eager(shop.app):
        handle = shop.label.push("x" * 20_000)
        with pytest.raises(ResultNotKept, match="it has 20002 bytes"):
            handle.result(timeout=1)


def test_a_cancelled_task_does_not_run() -> None:
    with MemoryTasks(shop.app) as tasks:
        handle = shop.label.options(delay=5).push("never")
        assert handle.cancel()
        assert tasks.advance(10) == 0
        assert handle.status() == "cancelled"
        with pytest.raises(TaskFailed, match="is cancelled"):
            handle.result(timeout=1)
        assert not handle.cancel()


async def test_async_code_has_the_same_methods() -> None:
    with eager(shop.app):
        handle = await shop.steps.apush(3)
        assert await handle.aresult(timeout=1) == 3
        assert await handle.astatus() == "done"
        assert not await handle.acancel()
        (listed,) = await shop.app.apush_many([shop.steps.call(2)])
        assert await listed.aresult(timeout=1) == 2


def test_middleware_runs_around_each_attempt_in_order() -> None:
    app = App()
    seen: list[object] = []

    @app.use
    async def outer(attempt: Attempt, run: Run) -> object:
        seen.append(("before", attempt.task, attempt.args))
        result = await run()
        seen.append(("after", result))
        return result

    @app.use
    async def inner(attempt: Attempt, run: Run) -> object:
        return [await run(), attempt.context.attempt]

    @app.task
    def double(number: int) -> list[int] | int:
        return number * 2

    with eager(app):
        assert double.push(4).result(timeout=1) == [8, 1]
    assert seen == [("before", "double", (4,)), ("after", [8, 1])]


def test_schedules_run_by_the_clock(memory_tasks: Callable[[App], MemoryTasks]) -> None:
    tasks = memory_tasks(shop.reports)
    # 30 seconds from one tick to the next, and three in the morning once a day.
    assert tasks.advance(timedelta(days=1)) == 2 * 60 * 24 + 1


def test_a_schedule_that_cannot_tick_is_refused_where_it_stands() -> None:
    app = App()
    task = app.task(name="t")(lambda: None)
    with pytest.raises(Misconfigured, match="61"):
        app.every("61 * * * *")(task)
    with pytest.raises(Misconfigured, match="Europe/Atlantis"):
        app.every("1 * * * *", timezone="Europe/Atlantis")(task)
    with pytest.raises(Misconfigured, match="stands above"):
        app.every("1 * * * *")(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="required argument: 'text'"):
        shop.app.every("5s", name="labels")(shop.label)
