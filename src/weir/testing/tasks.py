"""Tasks in tests: run at once where they are pushed, or on a memory broker whose clock the test moves.

```python
with eager(app):
    assert send_email.push("a@example.com", template="welcome").result(timeout=1) == "sent"

with MemoryTasks(app) as tasks:
    send_email.options(delay=60).push("a@example.com", template="welcome")
    tasks.advance(60)
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from weir.client.outcomes import MessageOutcome
from weir.client.sync import LoopThread
from weir.client.values import OutgoingMessage, PushResult
from weir.deadletters.failed_groups import tell_groups
from weir.errors import WeirError
from weir.model.durations import Duration, to_ms
from weir.model.inspection import MessageState
from weir.model.limits import MAX_BATCH
from weir.model.message import DeadMessage, Delivery, Failure, NewMessage
from weir.model.message_headers import SCHEDULE
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of
from weir.spec.payloads import payload_bytes
from weir.spec.timing import next_ticks
from weir.tasks.app import App
from weir.tasks.broker_backend import BrokerBackend, BrokerTasks
from weir.testing.clocks import ManualClock
from weir.testing.memory import MemoryBroker
from weir.workers.outcome import Ending, HandlerOutcome, raised, refused
from weir.workers.run_message import within
from weir.workers.threads import DaemonThreads

T = TypeVar("T")
# A test whose tasks push each other for ever fails instead of hanging.
MOST_RUNS = 100_000


class MemoryTasks:
    """The tasks of an app on a memory broker. Nothing runs until the test says so.

    ```python
    with MemoryTasks(app) as tasks:
        handle = send_email.push("a@example.com", template="welcome")
        assert tasks.run() == 1
        assert handle.status() == "done"
    ```

    `clock` only moves by `advance`, which also runs the schedules of the app. `dead` has the messages that
    died.
    """

    def __init__(self, app: App, *, eager: bool = False) -> None:
        self.app = app
        self.clock = ManualClock()
        self.broker = MemoryBroker(clock=self.clock)
        self.environment = EnvironmentRef(organization="test", project="test", environment="test")
        self.dead: list[DeadMessage] = []
        self._backend = _EagerBackend(self) if eager else _TestBackend(self)
        self._tasks = BrokerTasks(app, self.broker, executor=DaemonThreads())
        self._thread = LoopThread()
        self._timeouts: dict[str, int | None] = {}
        self._passing: list[tuple[Delivery, HandlerOutcome]] = []
        self._ticked_ms: dict[str, int] = {}

    def __enter__(self) -> Self:
        self.wait(self._define())
        self.app.redirect(self._backend, self.wait)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.app.redirect(None)
        self._thread.close()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work in the event loop of the tasks, from a test with or without one of its own."""
        return self._thread.run(work)

    def run(self) -> int:
        """Run all ready messages, and all messages that they push; return how many attempts ran.

        ```python
        assert tasks.run() == 1
        ```
        """
        return self.wait(self._run_ready())

    def advance(self, duration: Duration) -> int:
        """Let time pass: delays, retries and schedules come due in their order; return how many attempts ran.

        ```python
        tasks.advance(60)
        ```
        """
        return self.wait(self._advance(self.clock.now_ms() + to_ms(duration)))

    async def run_to_end(self) -> None:
        """Run ready and waiting messages, each at its time, until nothing waits any more."""
        await self._run_ready()
        while waiting := await self._waiting_until():
            self.clock.advance(max(min(waiting) - self.clock.now_ms(), 0))
            await self._run_ready()

    async def _define(self) -> None:
        spec = self.app.spec()
        for queue in spec.queues:
            self._timeouts[queue.name] = queue.delivery.handler_timeout_ms
            await self.broker.define(self.environment.queue(queue.name), queue)
        self._ticked_ms = {schedule.name: self.clock.now_ms() for schedule in spec.schedules}

    async def _advance(self, until_ms: int) -> int:
        done = await self._run_ready()
        while (next_ms := await self._next_ms(until_ms)) is not None:
            self.clock.advance(max(next_ms - self.clock.now_ms(), 0))
            await self._tick()
            done += await self._run_ready()
        self.clock.advance(until_ms - self.clock.now_ms())
        return done

    async def _next_ms(self, until_ms: int) -> int | None:
        """When something comes due next; None if not before the end."""
        moments = [*self._next_ticks().values(), *await self._waiting_until()]
        due = [moment for moment in moments if moment <= until_ms]
        return min(due) if due else None

    def _next_ticks(self) -> dict[str, int]:
        found = {}
        for name, schedule in self.app.schedules.items():
            ticks = next_ticks(schedule.timing, self._ticked_ms[name], 1)
            if ticks:
                found[name] = ticks[0]
        return found

    async def _waiting_until(self) -> list[int]:
        found = []
        for queue in self.app.spec().queues:
            for state in (MessageState.SCHEDULED, MessageState.RETRYING):
                page = await self.broker.list_messages(self.environment.queue(queue.name), state, limit=1)
                found += [message.available_at_ms for message in page.messages]
        return found

    async def _tick(self) -> None:
        for name, tick_ms in self._next_ticks().items():
            if tick_ms <= self.clock.now_ms():
                self._ticked_ms[name] = tick_ms
                schedule = self.app.schedules[name]
                message = NewMessage(payload=payload_bytes(schedule.payload), headers={SCHEDULE: name})
                await self.broker.enqueue(self.environment.queue(schedule.queue), [message])

    async def _run_ready(self) -> int:
        done = 0
        await self._pass_on()
        while found := await self.broker.dequeue(self.environment, consumer="test", limit=MAX_BATCH):
            for delivery in found:
                outcome = await self._attempt(delivery)
                if outcome.ending is Ending.WAITING:
                    self._passing.append((delivery, outcome))
                else:
                    await self.settle(delivery, outcome)
            await self._pass_on()
            done += len(found)
            if done > MOST_RUNS:
                raise AssertionError(f"{done} attempts at once; do tasks push each other for ever?")
        shard = shard_of(self.environment, shards=self.broker.shards)
        dead = await self.broker.take_dead(shard)
        await tell_groups(self.broker, dead)
        await self.broker.drop_dead(shard, [one.message_id for one in dead])
        self.dead += dead
        return done + (await self._run_ready() if dead else 0)

    async def _pass_on(self) -> None:
        """Try again to pass on the messages for which a next queue had no room."""
        waiting, self._passing = self._passing, []
        for delivery, before in waiting:
            assert before.pass_on is not None
            outcome = await before.pass_on()
            if outcome.ending is Ending.WAITING:
                self._passing.append((delivery, outcome))
            else:
                await self.settle(delivery, outcome)

    async def _attempt(self, delivery: Delivery) -> HandlerOutcome:
        """Run one attempt within the time of its queue. Whatever a task raises is its outcome."""
        try:
            return await within(self._timeouts[delivery.queue.queue], self._tasks.run_delivery(delivery))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return raised(error)
        except GeneratorExit:
            raise
        except BaseException as error:
            return raised(error)

    async def settle(self, delivery: Delivery, outcome: HandlerOutcome) -> None:
        """Settle a message as a worker does."""
        try:
            await self._settle(delivery, outcome)
        except WeirError as error:
            await self._settle(delivery, refused(outcome, error))

    async def _settle(self, delivery: Delivery, outcome: HandlerOutcome) -> None:
        if outcome.ending is Ending.DONE:
            await self.broker.ack([delivery.lease], results=[outcome.kept])
            return
        failure = Failure(
            lease=delivery.lease,
            error=outcome.error,
            delay_ms=outcome.delay_ms,
            uncounted=outcome.uncounted,
        )
        await (self.broker.dead_letter if outcome.ending is Ending.REJECTED else self.broker.nack)([failure])


class _TestBackend(BrokerBackend):
    """Knows which messages died; the broker itself forgets them."""

    def __init__(self, tasks: MemoryTasks) -> None:
        super().__init__(tasks.broker, tasks.environment)
        self._tasks = tasks

    async def outcome(self, message_id: str, *, wait: float = 0) -> MessageOutcome:
        # Nothing happens while a test waits, so the outcome is answered at once.
        for dead in self._tasks.dead:
            if dead.message_id == message_id:
                return MessageOutcome(status="dead", error=dead.error)
        return await super().outcome(message_id)


class _EagerBackend(_TestBackend):
    """Runs a message where it is pushed, before the push returns."""

    async def push_message(self, message: OutgoingMessage) -> PushResult:
        result = await super().push_message(message)
        await self._tasks.run_to_end()
        return result


@contextmanager
def eager(app: App) -> Iterator[MemoryTasks]:
    """Run each task where it is pushed, with its retries and delays at once.

    Arguments and results go through JSON as they do in a queue.

    ```python
    with eager(app):
        assert send_email.push("a@example.com", template="welcome").result(timeout=1) == "sent"
    ```
    """
    with MemoryTasks(app, eager=True) as tasks:
        yield tasks
