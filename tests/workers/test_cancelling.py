"""A message that is cancelled while a worker has it: its handler stops, and it is not retried."""

from __future__ import annotations

import asyncio
import threading
import time

from support.waiting import until
from weir.worker import Context

SPEC = """
app A {
  queue Q {
    message_type { id: int }
    delivery { max_attempts: 3, initial_backoff_ms: 1, max_backoff_ms: 2 }
    map_to: command Thing.Do { number: id }
  }
}
"""


async def test_a_handler_whose_message_is_cancelled_is_cancelled_within_a_second(rig):
    started, stopped = asyncio.Event(), asyncio.Event()

    @rig.commands.command("Thing.Do")
    async def do(number: int) -> None:
        started.set()
        try:
            await asyncio.sleep(30)
        finally:
            stopped.set()

    await rig.apply(SPEC)
    (message,) = await rig.put("Q", b'{"id": 1}')
    async with rig.working():
        await asyncio.wait_for(started.wait(), 5)
        asked = time.monotonic()
        await rig.broker.cancel(rig.environment.queue("Q"), [message])
        await asyncio.wait_for(stopped.wait(), 5)
        assert time.monotonic() - asked < 1.0
        await until(lambda: rig.endings() == ["cancelled"])
    state = await rig.broker.state(rig.environment.queue("Q"))
    assert (state.depth, state.delayed, state.running) == (0, 0, 0)
    assert await rig.outbox() == []


async def test_a_thread_is_asked_to_stop(rig):
    started, asked_at, told_at = threading.Event(), [], []

    @rig.commands.command("Thing.Do")
    def do(number: int, context: Context) -> None:
        started.set()
        assert context.cancelled.wait(10)
        told_at.append(time.monotonic())

    await rig.apply(SPEC)
    (message,) = await rig.put("Q", b'{"id": 1}')
    async with rig.working():
        await until(started.is_set)
        asked_at.append(time.monotonic())
        await rig.broker.cancel(rig.environment.queue("Q"), [message])
        await until(lambda: bool(told_at))
        await until(lambda: rig.endings() == ["cancelled"])
    assert told_at[0] - asked_at[0] < 1.0


async def test_a_thread_whose_time_is_up_is_asked_to_stop_too(rig):
    told = threading.Event()

    @rig.commands.command("Thing.Do")
    def do(number: int, context: Context) -> None:
        if context.attempt == 1 and context.cancelled.wait(10):
            told.set()

    await rig.apply(SPEC.replace("max_attempts: 3", "max_attempts: 3, handler_timeout: 50ms"))
    await rig.put("Q", b'{"id": 1}')
    async with rig.working():
        await until(lambda: rig.endings() == ["failed", "done"])
        await until(told.is_set)


async def test_a_handler_that_ignores_its_cancellation_changes_nothing(rig):
    started = asyncio.Event()

    @rig.commands.command("Thing.Do")
    async def do(number: int) -> str:
        started.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "done nevertheless"
        return "slept"

    await rig.apply(SPEC)
    (message,) = await rig.put("Q", b'{"id": 1}')
    async with rig.working() as worker:
        await asyncio.wait_for(started.wait(), 5)
        await rig.broker.cancel(rig.environment.queue("Q"), [message])
        await until(lambda: rig.endings() == ["cancelled"])
    assert worker.processed == 0


async def test_a_handler_that_ends_before_it_is_told_was_cancelled_not_lost(rig):
    started, gate = asyncio.Event(), asyncio.Event()

    @rig.commands.command("Thing.Do")
    async def do(number: int) -> None:
        started.set()
        await gate.wait()

    await rig.apply(SPEC)
    (message,) = await rig.put("Q", b'{"id": 1}')
    async with rig.working() as worker:
        await asyncio.wait_for(started.wait(), 5)
        await rig.broker.cancel(rig.environment.queue("Q"), [message])
        gate.set()
        await until(lambda: rig.endings() == ["cancelled"])
    assert worker.processed == 0


async def test_a_cancelled_message_that_was_fetched_ahead_never_runs(rig):
    ran, gate = [], asyncio.Event()

    @rig.commands.command("Thing.Do")
    async def do(number: int) -> None:
        ran.append(number)
        await gate.wait()

    await rig.apply(SPEC)
    _, second = await rig.put("Q", b'{"id": 1}', b'{"id": 2}')
    async with rig.working(concurrency=1, prefetch=1) as worker:
        await until(lambda: worker.fetched_ahead == 1)
        await rig.broker.cancel(rig.environment.queue("Q"), [second])
        await until(lambda: rig.endings() == ["cancelled"])
        gate.set()
        await until(lambda: rig.endings() == ["cancelled", "done"])
    assert ran == [1]


async def test_short_handlers_ask_for_no_cancellations(rig):
    asked = []
    revoked = rig.broker.revoked

    async def counting(leases):
        asked.append(len(leases))
        return await revoked(leases)

    rig.broker.revoked = counting

    @rig.commands.command("Thing.Do")
    async def do(number: int) -> None:
        await asyncio.sleep(1.0 if number == 1 else 0.001)

    await rig.apply(SPEC)
    await rig.put("Q", b'{"id": 1}', *[b'{"id": 2}'] * 50)
    async with rig.working():
        await until(lambda: rig.endings() == ["done"] * 51)
    assert set(asked) == {1}
