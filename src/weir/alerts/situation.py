"""Everything that is known about one queue at one moment: what a verdict looks at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from weir.model.names import QueueRef
from weir.telemetry.live_workers import LiveWorker
from weir.warehouse.reading.arithmetic import mean, per_second
from weir.warehouse.reading.pace import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What a queue did over a span."""

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
        """Messages that came to an end."""
        return self.count("acked") + self.count("dead") + self.count("expired")

    @property
    def failed(self) -> int:
        """Attempts that a consumer said had failed.

        A death whose reason is a lapsed lease is counted as dead and as lapsed; nobody said that it failed.
        """
        return self.count("nacked") + max(self.count("dead") - self.count("lapsed"), 0)

    @property
    def settled(self) -> int:
        """Attempts whose consumer said how they ended."""
        return self.count("acked") + self.failed

    @property
    def error_rate(self) -> float | None:
        """The share of settled attempts that failed; None if none was settled."""
        return mean(self.failed, self.settled)

    @property
    def held_ms(self) -> float | None:
        """How long a message is leased, by Little's law: those that are, over those that end per second."""
        return mean(self.running_mean * self.span_ms, self.settled + self.count("lapsed"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """A kind of error that attempts failed with lately."""

    sample: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """What workers wrote down: how attempts ended, and how long handlers ran from the start of each."""

    ended: int = 0
    """How many ended just now."""
    failed: int = 0
    """How many of these failed."""
    ended_ms: float = 0.0
    """How long these ran on average."""
    usual_ms: float | None = None
    """How long handlers ran on average before; None if none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workforce:
    """The workers that serve a queue, from what each says about itself."""

    workers: int = 0
    slots: int = 0
    free_slots: int = 0
    held: int = 0
    """Messages of this queue under their leases, those that were fetched ahead included."""
    handling: int = 0
    """Messages of this queue whose handler runs."""
    handling_ms: int = 0
    """How long these handlers have run so far, added up."""


def workforce_of(queue: QueueRef, alive: Iterable[LiveWorker]) -> Workforce:
    """Those of the live workers that take from a queue, and what all of them hold of it."""
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
    """Everything that is known about one queue at one moment."""

    depth: int
    delayed: int = 0
    running: int = 0
    """Leased messages."""
    reachable: bool = True
    """Redis answered; otherwise nothing is known of the queue now."""
    limit: int | None = None
    environment_running: int = 0
    environment_limit: int | None = None
    paused: bool = False
    oldest_age_ms: int = 0
    now: Flow = field(default_factory=lambda: Flow(span_ms=0))
    """The last fifteen to twenty seconds, up to this moment."""
    recent: Flow = field(default_factory=lambda: Flow(span_ms=0))
    """A longer span that ends now."""
    before: Flow | None = None
    """The usual: a longer span right before `recent`; None if nothing is known of it."""
    pace: Pace = field(default_factory=Pace)
    errors: tuple[Errors, ...] = ()
    """The most frequent first."""
    handlers: Handlers = field(default_factory=Handlers)
    has_work: bool = False
    """The queue has something to do, so workers serve it."""
    workforce: Workforce | None = None
    """None if it is not known who is alive."""
    delivers_to: str | None = None
    """The endpoint that the queue's messages are pushed to, if they are."""
    disabled_reason: str | None = None
    """Why the endpoint gets nothing more, if it is disabled."""
    telemetry_lag_ms: int = 0
    telemetry_off: bool = False
    """Somebody switched telemetry off."""

    @property
    def ready(self) -> int:
        """Messages that could be handed out now."""
        return max(self.depth - self.delayed, 0)

    @property
    def by_workers(self) -> bool:
        """Whether workers serve the queue, and not consumers of whom nothing is known."""
        return self.has_work and self.workforce is not None and self.workforce.workers > 0

    @property
    def environment_is_full(self) -> bool:
        limit = self.environment_limit
        return bool(limit) and self.environment_running >= (limit or 0)
