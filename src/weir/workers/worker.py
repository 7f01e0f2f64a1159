"""The worker: joins the parts that claim, run, settle and renew messages."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from weir.model.asyncio_tasks import cancel_and_wait, run_to_end
from weir.model.message import Delivery, Settlement
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import DeliverTo, QueueSpec
from weir.spec.snapshot import SpecReader
from weir.telemetry.live_workers import LiveWorker, QueueLoad, is_served
from weir.telemetry.presence import Presence
from weir.workers.cancellations import Cancellations
from weir.workers.claim import WAIT_MS, Claimer
from weir.workers.held import HeldMessage
from weir.workers.journal import AttemptJournal, AttemptRecord
from weir.workers.outcome import (
    CANCELLED,
    LOST,
    MOST_WAITING,
    NEVER_BEGUN,
    NO_SLOT,
    NOT_PASSED_ON,
    PASS_ON_EVERY_S,
    Ending,
    HandlerOutcome,
    raised,
)
from weir.workers.prefetch import Prefetch
from weir.workers.renew import Renewer
from weir.workers.run_message import Tools
from weir.workers.settle_batches import SettleBatches
from weir.workers.slots import Slots
from weir.workers.traced_run import trace_settlement

log = structlog.get_logger("weir.workers")
# How long running handlers may take to finish when the worker stops.
DRAIN_S = 25.0
# A queue with so few attempts gets no message claimed before a slot is free.
FEW_ATTEMPTS = 2
# How soon a worker follows a changed snapshot of the specs.
LOOK_EVERY_S = 0.2
# How long the last settlements may take at the end of a drain; afterwards their leases lapse.
LAST_SETTLE_S = 3.0
# Endings that leave nothing to settle, because the lease is gone.
_UNSETTLED = (Ending.LOST, Ending.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of a worker."""

    name: str
    concurrency: int = 10
    prefetch: int | None = None
    """How many messages are fetched ahead. None: as many as the slots finish in 50 ms, and at least one."""
    drain_s: float = DRAIN_S
    wait_ms: int = WAIT_MS
    """How long one claim waits for a message. A draining worker waits about as long for the claim to end."""
    environment: EnvironmentRef | None = None
    """None: the queues of every environment."""
    queues: frozenset[str] = frozenset()
    """Empty: every queue that has an action."""
    tasks: bool = False
    """Serve `queues` although they have no action: their messages call tasks."""


class Worker:
    """Serves every queue with an action, and follows the applied specs as they change."""

    def __init__(
        self,
        tools: Tools,
        specs: SpecReader,
        journal: AttemptJournal,
        options: WorkerOptions,
        *,
        presence: Presence | None = None,
        count_job: Callable[[], None] = lambda: None,
    ) -> None:
        self._tools = tools
        self._specs = specs
        self._journal = journal
        self._options = options
        self._presence = presence
        self._count_job = count_job
        self._settling = SettleBatches(tools.broker, on_settled=self._finish)
        self._prefetch = Prefetch(
            options.concurrency,
            fixed=options.prefetch,
            unsettled=self._settling.__len__,
            few_attempts=self._has_few_attempts,
        )
        self._slots = Slots(options.concurrency, prefetch=self._prefetch, tools=tools, on_ended=self._settle)
        self._renewer = Renewer(tools.broker, on_lost=self._lose)
        self._cancellations = Cancellations(
            tools.broker, self._renewer, on_cancelled=lambda held: self._stop_attempt(held, CANCELLED)
        )
        self._claims: dict[QueueRef, tuple[Claimer, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._draining = False
        self._passing: dict[HeldMessage, asyncio.Task[None]] = {}
        self.processed = 0

    @property
    def free_slots(self) -> int:
        """How many more messages could be worked on now."""
        return self._options.concurrency - self._prefetch.running

    @property
    def fetched_ahead(self) -> int:
        """How many messages were fetched and wait for a slot."""
        return len(self._prefetch)

    def described(self) -> LiveWorker:
        """The note about this worker for other processes."""
        now_ms = self._tools.clock.now_ms()
        held: dict[QueueRef, list[int | None]] = defaultdict(list)
        for one in self._renewer:
            held[one.delivery.queue].append(one.started_at_ms)
        return LiveWorker(
            slots=self._options.concurrency,
            free_slots=self.free_slots,
            environment=self._options.environment,
            queues=self._options.queues,
            draining=self._draining,
            loads=tuple(_load(queue, begun, now_ms=now_ms) for queue, begun in held.items()),
        )

    async def run(self) -> None:
        """Work until cancelled; then finish the running handlers within the drain time."""
        watching = [
            asyncio.create_task(self._renewer.run(), name="renew"),
            asyncio.create_task(self._cancellations.run(), name="look for cancelled messages"),
        ]
        try:
            while True:
                self._follow_specs()
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            await run_to_end(self._drain(watching))

    def _follow_specs(self) -> None:
        """Start a claimer per queue that has an action now, and stop the claimers of other queues."""
        wanted = {queue for queue in self._servable() if self._serves(queue)}
        self._prefetch.follow(wanted)
        for queue in [queue for queue in self._claims if queue not in wanted]:
            self._stop_claiming(queue)
        for queue in wanted:
            if queue not in self._claims or self._claims[queue][1].done():
                claimer = self._claimer(queue)
                task = asyncio.create_task(claimer.run(), name=f"claim {queue.queue}")
                self._claims[queue] = (claimer, task)

    def _servable(self) -> Iterable[QueueRef]:
        snapshot = self._specs.snapshot
        return snapshot.queues if self._options.tasks else (queue for queue, _ in snapshot.served_queues())

    def _stop_claiming(self, queue: QueueRef) -> None:
        claimer, task = self._claims.pop(queue)
        claimer.stop()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _serves(self, queue: QueueRef) -> bool:
        return is_served(queue, environment=self._options.environment, names=self._options.queues)

    def _claimer(self, queue: QueueRef) -> Claimer:
        return Claimer(
            self._tools.broker,
            queue,
            consumer=self._options.name,
            prefetch=self._prefetch,
            accept=self._accept,
            first_limit=self._options.concurrency + (self._options.prefetch or 1),
            blocked=lambda: self._blocked(queue),
            wait_ms=self._options.wait_ms,
        )

    def _blocked(self, queue: QueueRef) -> bool:
        """Whether the queue's messages must stay in the queue: its endpoint is disabled, or too many wait."""
        if sum(held.delivery.queue == queue for held in self._passing) >= MOST_WAITING:
            return True
        spec = self._specs.snapshot.queues.get(queue)
        action = spec.action if spec else None
        return isinstance(action, DeliverTo) and self._tools.log.is_disabled(queue.scope, action.url)

    def _accept(self, deliveries: Sequence[Delivery]) -> None:
        """Take the messages of one claim, which are of one queue."""
        now, queue = time.monotonic(), deliveries[0].queue
        spec = self._specs.snapshot.queues.get(queue) or QueueSpec(name=queue.queue)
        batch = [HeldMessage(delivery, spec, claimed_at=now) for delivery in deliveries]
        if self._has_few_attempts(queue):
            # Claims of several queues may have counted on the same slots.
            free = max(self._prefetch.free_slots, 0)
            batch, ahead = batch[:free], batch[free:]
            self._give_back(ahead, NO_SLOT)
            if not batch:
                return
        # Renew from now on, and not only while handlers run: the wait for a slot may outlast the lease.
        self._renewer.hold(batch)
        self._prefetch.add(batch)
        self._slots.wake()
        if self._presence is not None:
            self._presence.note_served(queue.scope)

    def _has_few_attempts(self, queue: QueueRef) -> bool:
        spec = self._specs.snapshot.queues.get(queue)
        return spec is not None and spec.delivery.max_attempts <= FEW_ATTEMPTS

    def _settle(self, held: HeldMessage, outcome: HandlerOutcome) -> None:
        """Take a message whose handler ended."""
        if outcome.ending is Ending.WAITING:
            held.task = asyncio.create_task(self._keep_passing_on(held, outcome), name="pass on")
            self._passing[held] = held.task
            return
        self._renewer.release(held)
        if outcome.ending in _UNSETTLED:
            self._record(held, outcome, outcome.ending.value)
        else:
            self._settling.settle(held, outcome)

    async def _keep_passing_on(self, held: HeldMessage, outcome: HandlerOutcome) -> None:
        """Try to pass a message on until there is room. It has no slot, and its lease is renewed."""
        try:
            while outcome.pass_on is not None:
                await asyncio.sleep(PASS_ON_EVERY_S)
                outcome = await outcome.pass_on()
        except asyncio.CancelledError:
            outcome = held.stopped_by or NOT_PASSED_ON
        except Exception as error:  # whatever the values of an expression raise
            outcome = raised(error)
        del self._passing[held]
        held.task = None
        held.end(now_ms=self._tools.clock.now_ms())
        self._settle(held, outcome)

    def _lose(self, held: HeldMessage, answer: Settlement) -> None:
        """Stop the handler of a message whose lease could not be renewed."""
        self._stop_attempt(held, CANCELLED if answer is Settlement.CANCELLED else LOST)

    def _stop_attempt(self, held: HeldMessage, outcome: HandlerOutcome) -> None:
        """Stop the handler of a message whose lease is gone, or never begin it."""
        if held.stopped_by is not None:
            return
        held.stopped_by = outcome
        self._renewer.release(held)
        if held.task is not None:
            held.task.cancel()
        else:
            self._prefetch.drop(held)
            held.end(now_ms=self._tools.clock.now_ms())
            self._settle(held, outcome)

    def _finish(self, held: HeldMessage, outcome: HandlerOutcome, settlement: Settlement) -> None:
        self._prefetch.look_again()
        if settlement in (Settlement.LAPSED, Settlement.CANCELLED):
            gone = LOST if settlement is Settlement.LAPSED else CANCELLED
            self._record(held, outcome, gone.ending.value)
            return
        dead = settlement is Settlement.DEAD or outcome.ending is Ending.REJECTED
        self._record(held, outcome, "dead" if dead else outcome.ending.value)
        if outcome.ending is Ending.DONE:
            self.processed += 1
            self._count_job()

    def _record(self, held: HeldMessage, outcome: HandlerOutcome, ending: str) -> None:
        if self._tools.tracer is not None:
            now_ms = self._tools.clock.now_ms()
            trace_settlement(self._tools.tracer, held, outcome, ending=ending, now_ms=now_ms)
        self._journal.record(
            AttemptRecord(
                delivery=held.delivery,
                worker=self._options.name,
                started_at_ms=held.started_at_ms or held.finished_at_ms,
                finished_at_ms=held.finished_at_ms,
                ending=ending,
                error=outcome.error,
                result=outcome.result,
            )
        )

    async def _drain(self, watching: list[asyncio.Task[None]]) -> None:
        """Stop claiming, let handlers finish, cancel the handlers that take too long, settle everything.

        Leases are renewed until the end, because handlers and settlements need them.
        """
        self._draining = True
        for queue in list(self._claims):
            self._stop_claiming(queue)
        if self._ending:
            _, late = await asyncio.wait(self._ending, timeout=self._options.wait_ms / 1_000 + 0.5)
            await cancel_and_wait(late)
        if self._prefetch.running or self.fetched_ahead:
            log.info("draining", running=self._prefetch.running, waiting=self.fetched_ahead)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.drain_s):
                await self._slots.wait_until_empty()
        await self._slots.stop()
        await cancel_and_wait(list(self._passing.values()))
        self._give_back([self._prefetch.take() for _ in range(self.fetched_ahead)], NEVER_BEGUN)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SETTLE_S):
                await self._settling.wait_until_settled()
        await cancel_and_wait(watching)

    def _give_back(self, batch: Iterable[HeldMessage], outcome: HandlerOutcome) -> None:
        """Return messages that never got a slot."""
        for held in batch:
            held.end(now_ms=self._tools.clock.now_ms())
            self._settle(held, outcome)


def _load(queue: QueueRef, begun: list[int | None], *, now_ms: int) -> QueueLoad:
    ages_ms = [max(now_ms - at_ms, 0) for at_ms in begun if at_ms is not None]
    return QueueLoad(queue=queue, held=len(begun), running=len(ages_ms), running_ms=sum(ages_ms))
