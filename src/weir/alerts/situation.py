"""The situation of one queue at one moment: the input of a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from weir.model.names import QueueRef
from weir.telemetry.events import FINAL_COUNTERS
from weir.telemetry.live_workers import LiveWorker
from weir.warehouse.reading.arithmetic import mean, per_second
from weir.warehouse.reading.pace import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The counts of a queue over a span of time."""

    span_ms: int
    counts: Mapping[str, int] = field(default_factory=dict)
    running_mean: float = 0.0
    running_max: int = 0

    def count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def rate(self, name: str) -> float:
        return per_second(self.count(name), self.span_ms)

    @property
    def left(self) -> int:
        """Messages that were acked or cancelled, died or expired."""
        return sum(self.count(name) for name in FINAL_COUNTERS)

    @property
    def failed(self) -> int:
        """Attempts that a consumer reported as failed.

        A death by a lapsed lease is counted as dead and as lapsed, but no consumer reported a failure.
        """
        return self.count("nacked") + max(self.count("dead") - self.count("lapsed"), 0)

    @property
    def settled(self) -> int:
        """Attempts whose end a consumer reported."""
        return self.count("acked") + self.failed

    @property
    def error_rate(self) -> float | None:
        """The share of settled attempts that failed; None if none was settled."""
        return mean(self.failed, self.settled)

    @property
    def held_ms(self) -> float | None:
        """How long a message is leased, by Little's law: leased messages over leases that end per second."""
        return mean(self.running_mean * self.span_ms, self.settled + self.count("lapsed"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """A kind of error of recent attempts."""

    sample: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The records of workers: how attempts ended, and how long their handlers ran."""

    ended: int = 0
    """Attempts that ended just now."""
    failed: int = 0
    """How many of these failed."""
    ended_ms: float = 0.0
    """How long these ran on average."""
    usual_ms: float | None = None
    """How long handlers ran on average before that; None if none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workforce:
    """The workers that serve a queue, from the notes that they keep in Redis."""

    workers: int = 0
    slots: int = 0
    free_slots: int = 0
    held: int = 0
    """Messages of this queue that they have leased, also prefetched ones."""
    handling: int = 0
    """Messages of this queue whose handler runs."""
    handling_ms: int = 0
    """The sum of the times that these handlers have run so far."""


def workforce_of(queue: QueueRef, alive: Iterable[LiveWorker]) -> Workforce:
    """The live workers that take from a queue, and the messages of it that any worker holds."""
    everyone = tuple(alive)
    takers = [worker for worker in everyone if worker.takes(queue)]
    loads = [load for worker in everyone for load in worker.loads if load.queue == queue]
    return Workforce(
        workers=len(takers),
        slots=sum(worker.slots for worker in takers),
        free_slots=sum(worker.free_slots for worker in takers),
        held=sum(load.held for load in loads),
        handling=sum(load.running for load in loads),
        handling_ms=sum(load.running_ms for load in loads),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that is known about one queue at one moment; a verdict is a function of it."""

    depth: int
    delayed: int = 0
    running: int = 0
    """Leased messages."""
    reachable: bool = True
    """Redis answered; otherwise the queue's current state is unknown."""
    limit: int | None = None
    environment_running: int = 0
    environment_limit: int | None = None
    paused: bool = False
    oldest_age_ms: int = 0
    now: Flow = field(default_factory=lambda: Flow(span_ms=0))
    """The last 15 to 20 seconds, up to this moment."""
    recent: Flow = field(default_factory=lambda: Flow(span_ms=0))
    """A longer span that ends now."""
    before: Flow | None = None
    """The usual: a longer span right before `recent`; None if there is no telemetry of it."""
    pace: Pace | None = field(default_factory=Pace)
    """None if the counts up to this moment are not known, because telemetry of them has not landed."""
    errors: tuple[Errors, ...] = ()
    """The most frequent first."""
    handlers: Handlers = field(default_factory=Handlers)
    has_work: bool = False
    """The queue has an action, so workers serve it."""
    workforce: Workforce | None = None
    """None if it is not known which workers are alive."""
    delivers_to: str | None = None
    """The endpoint that the queue delivers to; None if it does not deliver."""
    disabled_reason: str | None = None
    """Why the endpoint is disabled; None if it is not."""
    telemetry_lag_ms: int = 0
    telemetry_off_since_ms: int | None = None
    """Since when metrics are switched off; None while they are on."""

    @property
    def ready(self) -> int:
        """Messages that could be handed out now."""
        return max(self.depth - self.delayed, 0)

    @property
    def counted(self) -> bool:
        """Whether the counts up to this moment are known, and so the rates."""
        return self.pace is not None

    @property
    def by_workers(self) -> bool:
        """Whether live workers serve the queue. Nothing is known about consumers over HTTP."""
        return self.has_work and self.workforce is not None and self.workforce.workers > 0

    @property
    def environment_is_full(self) -> bool:
        limit = self.environment_limit
        return bool(limit) and self.environment_running >= (limit or 0)
