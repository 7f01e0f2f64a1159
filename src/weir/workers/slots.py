"""The slots of a worker: each is one asyncio task that runs the handlers of messages one after the other."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

import structlog

from weir.model.asyncio_tasks import cancel_and_wait
from weir.workers.held import HeldMessage
from weir.workers.outcome import STOPPED, HandlerOutcome, raised
from weir.workers.prefetch import Prefetch
from weir.workers.run_message import Tools, run

log = structlog.get_logger("weir.workers")
# How long slots may keep the event loop before others have a turn: renewals, claims, waiting handlers.
TURN_S = 0.002
OnEnded = Callable[[HeldMessage, HandlerOutcome], None]


class Slots:
    """Runs at most `concurrency` handlers at once. `on_ended` gets each message with its outcome."""

    def __init__(self, concurrency: int, *, prefetch: Prefetch, tools: Tools, on_ended: OnEnded) -> None:
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._tools = tools
        self._on_ended = on_ended
        self._turn = LoopTurn()
        self._tasks: list[asyncio.Task[None]] = []
        self._idle: deque[asyncio.Future[None]] = deque()
        self._emptied = asyncio.Event()
        self._closing = False

    def wake(self) -> None:
        """Let a slot look for messages. A slot whose handler waits wakes the next one."""
        while self._idle:
            sleeper = self._idle.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                return
        if len(self._tasks) < self._concurrency and not self._closing:
            number = len(self._tasks) + 1
            self._tasks.append(asyncio.create_task(self._serve(), name=f"slot {number}"))

    async def wait_until_empty(self) -> None:
        """Wait until no message runs or waits."""
        while self._prefetch.running or len(self._prefetch):
            self._emptied.clear()
            await self._emptied.wait()

    async def stop(self) -> None:
        """Stop every slot. Messages whose handlers run end with the outcome `STOPPED`."""
        self._closing = True
        await cancel_and_wait(self._tasks)

    async def _serve(self) -> None:
        """Work on messages until the worker stops."""
        task = asyncio.current_task()
        while not self._closing:
            if not len(self._prefetch):
                self._emptied.set()
                await self._sleep()
                continue
            await self._work(self._prefetch.take(), task)
            if self._turn.is_over():
                await self._turn.next()

    async def _sleep(self) -> None:
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(sleeper)
        await sleeper

    async def _work(self, held: HeldMessage, task: asyncio.Task[None] | None) -> None:
        """Run one message. A cancellation of its handler ends here, unless the worker stops."""
        clock = self._tools.clock
        started = time.monotonic()
        held.task, held.started_at_ms = task, clock.now_ms()
        try:
            outcome = await run(held.delivery, held.spec, self._tools, on_waiting=self._wake_next)
        except asyncio.CancelledError as error:
            outcome = STOPPED if self._closing else raised(error)
        except GeneratorExit:
            raise
        except BaseException as error:  # a slot that ended would be missing until the worker starts again
            log.exception("running a message failed", queue=held.delivery.queue.queue)
            outcome = raised(error)
        outcome = held.stopped_by or outcome
        self._prefetch.free(held, seconds=time.monotonic() - started)
        _clear_cancellation(task)
        held.task = None
        held.end(now_ms=clock.now_ms())
        self._on_ended(held, outcome)

    def _wake_next(self) -> None:
        if len(self._prefetch):
            self.wake()


class LoopTurn:
    """A span of time that all slots share. After it they let the event loop serve everything else once."""

    def __init__(self, length_s: float = TURN_S) -> None:
        self._length_s = length_s
        self._ends = 0.0
        self._is_ending = False

    def is_over(self) -> bool:
        return time.monotonic() >= self._ends

    async def next(self) -> None:
        """Give way until the next turn."""
        if not self._is_ending:
            self._is_ending = True
            # `_begin` runs before the slots that give way go on, because it is scheduled before them.
            asyncio.get_running_loop().call_soon(self._begin)
        await asyncio.sleep(0)

    def _begin(self) -> None:
        self._is_ending = False
        self._ends = time.monotonic() + self._length_s


def _clear_cancellation(task: asyncio.Task[None] | None) -> None:
    """Let the task go on as if it was never cancelled; else task groups of later handlers would not work."""
    while task is not None and task.cancelling():
        task.uncancel()
