"""The worker: joins the parts that claim, run, settle and renew messages."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import structlog

from weir.model.asyncio_tasks import cancel_and_wait, run_to_end
from weir.model.message import Delivery, LeaseRef, Settlement
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import DeliverTo, QueueSpec
from weir.spec.snapshot import SpecReader
from weir.telemetry.live_workers import LiveWorker, QueueLoad, is_served
from weir.telemetry.presence import Presence
from weir.workers.claim import WAIT_MS, Claimer, FreeSlots
from weir.workers.journal import AttemptJournal, AttemptRecord
from weir.workers.outcome import Ending, HandlerOutcome, failed
from weir.workers.renew import Renewer
from weir.workers.run_message import Tools, run
from weir.workers.settle_batches import SettleBatches

log = structlog.get_logger("weir.workers")
# How long running handlers may take to finish when the worker stops.
DRAIN_S = 25.0
# How soon a worker follows a changed snapshot of the specs.
LOOK_EVERY_S = 0.2
# How long the last settlements may take at the end of a drain; afterwards their leases lapse.
LAST_SETTLE_S = 3.0
LEASE_LOST = "lease lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of a worker."""

    name: str
    concurrency: int = 10
    prefetch: int = 10
    drain_s: float = DRAIN_S
    wait_ms: int = WAIT_MS
    """How long one claim waits for a message; a draining worker waits that long for it to return."""
    environment: EnvironmentRef | None = None
    """None: the queues of every environment."""
    queues: frozenset[str] = frozenset()
    """Empty: every queue that has an action."""


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
        self._capacity = FreeSlots(options.concurrency + options.prefetch)
        self._slots = asyncio.Semaphore(options.concurrency)
        self._renewer = Renewer(tools.broker)
        self._settling = SettleBatches(tools.broker, on_settled=self._finish)
        self._claims: dict[QueueRef, tuple[Claimer, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: dict[LeaseRef, int | None] = {}
        """For each lease, when its handler began; None while the message waits for a slot."""
        self._draining = False
        self.processed = 0

    @property
    def free_slots(self) -> int:
        """How many more messages could be worked on now."""
        return max(self._options.concurrency - len(self._tasks), 0)

    @property
    def fetched_ahead(self) -> int:
        """How many messages were fetched and wait for a slot."""
        return max(len(self._tasks) - self._options.concurrency, 0)

    def described(self) -> LiveWorker:
        """The note about this worker for other processes."""
        now_ms = self._tools.clock.now_ms()
        held: dict[QueueRef, list[int | None]] = defaultdict(list)
        for lease, started_at_ms in self._held.items():
            held[lease.queue].append(started_at_ms)
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
        renewing = asyncio.create_task(self._renewer.run(), name="renew")
        try:
            while True:
                self._follow_specs()
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            await run_to_end(self._drain(renewing))

    def _follow_specs(self) -> None:
        """Start a claimer per queue that has an action now, and stop the claimers of other queues."""
        wanted = {queue for queue, _ in self._specs.snapshot.served_queues() if self._serves(queue)}
        for queue in [queue for queue in self._claims if queue not in wanted]:
            self._stop_claiming(queue)
        for queue in wanted:
            if queue not in self._claims or self._claims[queue][1].done():
                claimer = self._claimer(queue)
                task = asyncio.create_task(claimer.run(), name=f"claim {queue.queue}")
                self._claims[queue] = (claimer, task)

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
            capacity=self._capacity,
            accept=self._accept,
            blocked=lambda: self._blocked(queue),
            wait_ms=self._options.wait_ms,
        )

    def _blocked(self, queue: QueueRef) -> bool:
        """Whether the queue's endpoint is disabled; its messages then stay in the queue."""
        spec = self._specs.snapshot.queues.get(queue)
        action = spec.action if spec else None
        return isinstance(action, DeliverTo) and self._tools.log.is_disabled(queue.scope, action.url)

    def _accept(self, delivery: Delivery) -> None:
        spec = self._specs.snapshot.queues.get(delivery.queue, QueueSpec(name=delivery.queue.queue))
        task = asyncio.create_task(self._work(delivery, spec), name=f"message {delivery.message_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._held[delivery.lease] = None
        # From now on and not only while the handler runs: the wait for a slot may be longer than the lease.
        self._renewer.hold(delivery, lease_ms=spec.delivery.lease_ms, on_lost=partial(_lose, task))
        if self._presence is not None:
            self._presence.note_served(delivery.queue.scope)

    async def _work(self, delivery: Delivery, spec: QueueSpec) -> None:
        try:
            async with self._slots:
                self._held[delivery.lease] = self._tools.clock.now_ms()
                outcome = self._timed(delivery, await run(delivery, spec, self._tools))
            self._settling.settle(delivery, outcome)
        except asyncio.CancelledError as cancelled:
            if LEASE_LOST in cancelled.args:
                lost = HandlerOutcome(ending=Ending.LOST, error="the lease was lost")
                self._record(delivery, self._timed(delivery, lost), "lost")
            else:
                stopped = failed("the worker stopped", delay_ms=0)
                self._settling.settle(delivery, self._timed(delivery, stopped))
        finally:
            self._held.pop(delivery.lease, None)
            self._renewer.release(delivery)
            self._capacity.give_back()

    def _timed(self, delivery: Delivery, outcome: HandlerOutcome) -> HandlerOutcome:
        """The outcome with the times of its handler; both are now if it never began."""
        now_ms = self._tools.clock.now_ms()
        started_at_ms = self._held.get(delivery.lease)
        return replace(
            outcome,
            started_at_ms=now_ms if started_at_ms is None else started_at_ms,
            finished_at_ms=now_ms,
        )

    def _finish(self, delivery: Delivery, outcome: HandlerOutcome, settlement: Settlement) -> None:
        if settlement is Settlement.LAPSED:
            self._record(delivery, outcome, "lost")
            return
        dead = settlement is Settlement.DEAD or outcome.ending is Ending.REJECTED
        self._record(delivery, outcome, "dead" if dead else outcome.ending.value)
        if outcome.ending is Ending.DONE:
            self.processed += 1
            self._count_job()

    def _record(self, delivery: Delivery, outcome: HandlerOutcome, ending: str) -> None:
        self._journal.record(
            AttemptRecord(
                delivery=delivery,
                worker=self._options.name,
                started_at_ms=outcome.started_at_ms,
                finished_at_ms=outcome.finished_at_ms,
                ending=ending,
                error=outcome.error,
                result=outcome.result,
            )
        )

    async def _drain(self, renewing: asyncio.Task[None]) -> None:
        """Stop claiming, let handlers finish, cancel those that do not, settle everything.

        Leases are renewed until the end, because handlers and settlements need them.
        """
        self._draining = True
        for queue in list(self._claims):
            self._stop_claiming(queue)
        if self._ending:
            _, late = await asyncio.wait(self._ending, timeout=self._options.wait_ms / 1_000 + 0.5)
            await cancel_and_wait(late)
        running = list(self._tasks)
        if running:
            log.info("draining", running=len(running))
            await asyncio.wait(running, timeout=self._options.drain_s)
        await cancel_and_wait(self._tasks.copy())
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SETTLE_S):
                await self._settling.wait_until_settled()
        await cancel_and_wait([renewing])


def _load(queue: QueueRef, begun: list[int | None], *, now_ms: int) -> QueueLoad:
    ages_ms = [max(now_ms - at_ms, 0) for at_ms in begun if at_ms is not None]
    return QueueLoad(queue=queue, held=len(begun), running=len(ages_ms), running_ms=sum(ages_ms))


def _lose(task: asyncio.Task[None]) -> None:
    task.cancel(LEASE_LOST)
