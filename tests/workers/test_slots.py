"""Slots: handlers that follow each other in one asyncio task do not see each other."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextvars import ContextVar

from support.waiting import until
from weir.worker import Context

SPEC = "app A { queue Q { delivery { max_attempts: 3, initial_backoff_ms: 1 } map_to: command Thing.Do } }"
TIMED = SPEC.replace("max_attempts: 3", "max_attempts: 3, handler_timeout: 50ms")


async def test_a_context_variable_of_one_handler_is_not_seen_by_the_next(rig) -> None:
    marks: ContextVar[str] = ContextVar("marks", default="clean")
    seen: list[str] = []

    @rig.commands.command("Thing.Do")
    async def do(context: Context) -> None:
        seen.append(marks.get())
        marks.set("dirty")
        if context.payload == b"2":
            await asyncio.sleep(0)
        assert marks.get() == "dirty"

    await rig.apply(SPEC)
    await rig.put("Q", b"1", b"2", b"3", b"2")
    async with rig.working(concurrency=1):
        await until(lambda: rig.endings() == ["done"] * 4)
    assert seen == ["clean"] * 4


async def test_a_handler_that_cancels_itself_fails_alone(rig) -> None:
    @rig.commands.command("Thing.Do")
    async def do(context: Context) -> None:
        if context.payload == b"1" and context.attempt == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)

    await rig.apply(SPEC)
    await rig.put("Q", b"1", b"2")
    async with rig.working(concurrency=1):
        await until(lambda: sorted(rig.endings()) == ["done", "done", "failed"])
    assert "cancelled" in next(one.error for one in rig.journal.attempts if one.ending == "failed")


async def test_a_handler_does_not_see_that_the_one_before_it_was_cancelled(rig) -> None:
    cancelling: list[int] = []

    async def fail() -> None:
        raise ValueError("the inner one")

    @rig.commands.command("Thing.Do")
    async def do(context: Context) -> None:
        task = asyncio.current_task()
        assert task is not None
        # Task groups of Python 3.13 cancel themselves if this is not 0.
        cancelling.append(task.cancelling())
        if context.attempt > 1:
            return
        if context.payload == b"1":
            task.cancel()
            await asyncio.sleep(30)
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await asyncio.sleep(30)

    await rig.apply(SPEC)
    await rig.put("Q", b"1", b"2")
    async with rig.working(concurrency=1):
        await until(lambda: rig.endings().count("done") == 2)
    errors = [one.error for one in rig.journal.attempts if one.ending == "failed"]
    assert "cancelled" in errors[0]
    assert "ExceptionGroup" in errors[1]
    assert cancelling == [0] * 4


async def test_a_handler_that_takes_too_long_leaves_its_slot_to_the_next(rig) -> None:
    @rig.commands.command("Thing.Do")
    async def do(context: Context) -> None:
        if context.attempt == 1:
            await asyncio.sleep(30)

    await rig.apply(TIMED)
    await rig.put("Q", b"1", b"2")
    async with rig.working(concurrency=1):
        await until(lambda: rig.endings().count("done") == 2)
    errors = [one.error for one in rig.journal.attempts if one.ending == "failed"]
    assert ["longer than 50 ms" in error for error in errors] == [True, True]


async def test_handlers_that_never_wait_leave_time_for_others(rig) -> None:
    turn, handlers = 0, Counter[int]()

    @rig.commands.command("Thing.Do")
    async def do() -> None:
        handlers[turn] += 1
        time.sleep(0.0005)  # noqa: ASYNC251 - it must hold the event loop

    await rig.apply(SPEC)
    await rig.put("Q", *[b"{}"] * 400)
    async with rig.working(concurrency=10) as worker:
        while worker.processed < 400:
            turn += 1
            await asyncio.sleep(0)
    assert max(handlers.values()) <= 2 * (4 + 10), "four fill a turn, and each slot may begin one more"


async def test_a_handler_that_raises_anything_leaves_its_slot_to_the_next(rig) -> None:
    class Odd(BaseException):
        pass

    @rig.commands.command("Thing.Do")
    async def do(context: Context) -> None:
        if context.payload == b"1":
            raise Odd("never seen")

    await rig.apply(SPEC)
    await rig.put("Q", b"1", b"2")
    async with rig.working(concurrency=1):
        await until(lambda: "dead" in rig.endings() and "done" in rig.endings())
    (dead,) = await rig.outbox()
    assert "never seen" in dead.error
    assert (await rig.broker.state(rig.environment.queue("Q"))).running == 0


async def test_a_message_that_waits_for_a_slot_and_loses_its_lease_never_runs(rig) -> None:
    ran, free = [], asyncio.Event()

    @rig.commands.command("Thing.Do")
    async def do(context: Context) -> None:
        ran.append((context.payload, context.attempt))
        await free.wait()

    await rig.apply(SPEC.replace("max_attempts: 3", "max_attempts: 3, lease: 300ms"))
    await rig.put("Q", b"1", b"2")
    extend, lost = rig.broker.extend, []

    async def losing(leases, *, lease_ms):
        answers = await extend(leases, lease_ms=lease_ms)
        from weir.model.message import Settlement

        if worker.fetched_ahead and not lost:
            lost.extend(lease for lease in leases if lease.message_id == second)
            return [
                Settlement.LAPSED if lease in lost else one
                for lease, one in zip(leases, answers, strict=True)
            ]
        return answers

    rig.broker.extend = losing
    async with rig.working(concurrency=1) as worker:
        await until(lambda: worker.fetched_ahead == 1)
        second = next(one.delivery.message_id for one in worker._prefetch._waiting)
        await until(lambda: rig.endings() == ["lost"])
        assert len(ran) == 1
        free.set()
