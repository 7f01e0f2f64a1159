"""The catalogue of events: the contract between the code that emits them and the pipeline.

An `EventKind` is data. The Lua block of the broker's scripts (`telemetry.lua`), the Python emitter
(`telemetry.codec`) and the pipeline's decoder (`telemetry.event_columns`) all follow from it.

A kind that changes keeps the fields of its earlier versions in `earlier`. Entries and archive files of those
versions stay readable: a field that they lack is 0, a text is empty, and fields that the kind no longer has
are left out.

Counts are summed. Gauges are the state right after the call; a bucket keeps their maximum and their last
value. Of measured gauges, which nobody sets, it also keeps the minimum and the sum over the events. Odometers
are lifetime totals kept by the same script: they only grow, and the sum of the counts must agree with them,
so any loss or duplication on the way to a chart can be measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from weir.model.limits import MAX_HEADER_BYTES, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES
from weir.telemetry.lives import LIFE_BYTES

STREAM_FIELD = "e"
"""The one field of a stream entry; its value is the packed event."""

MAX_EVENT_BYTES = 16_384
"""No event is longer: 1,000 samples, four names of 255 bytes and the header of a queue event take 5.2 kB.
Only a kind whose events hold whole messages says otherwise."""

LOG_ENTRY_BYTES = 64 * 1024
"""An event of the log ends before the message that would bring its bodies over this, but has at least one."""
LOG_BODIES_BYTES = LOG_ENTRY_BYTES + MAX_NAME_BYTES + MAX_HEADER_BYTES + MAX_PAYLOAD_BYTES
"""The longest bodies of an event of the log: one message of the longest kind."""


class Aggregate(StrEnum):
    SUM = "sum"
    MAX = "max"
    MIN = "min"
    LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One number of an event: unsigned, little-endian, `width` bytes."""

    name: str
    width: int
    aggregates: tuple[Aggregate, ...] = ()
    """Empty: the field is not part of the sums."""
    doc: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextField:
    """One text of an event, in UTF-8, or with `binary` any bytes; it is cut at `max_bytes`."""

    name: str
    max_bytes: int
    binary: bool = False
    doc: str = ""

    def cut(self, value: str | bytes) -> bytes:
        """The value in at most `max_bytes` bytes; a text is cut between two characters."""
        data = value.encode(errors="replace") if isinstance(value, str) else bytes(value)
        end = min(len(data), self.max_bytes)
        # A byte of the form 10xxxxxx continues a character. No character has more than three of them.
        while not self.binary and max(self.max_bytes - 3, 0) < end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        return data[:end]

    def read(self, data: bytes) -> str | bytes:
        """The value that was packed; bytes that are not UTF-8 become the replacement character."""
        return data if self.binary else data.decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLayout:
    """The packed form of one version of a kind."""

    version: int
    fields: tuple[Field, ...]
    texts: tuple[TextField, ...]
    dimensions: int
    """How many names follow the header."""

    @property
    def text_width(self) -> int:
        """How many bytes the length of a text takes: two, or four if one of them may be longer than 64 kB."""
        return 4 if any(text.max_bytes >= 1 << 16 for text in self.texts) else 2

    @property
    def struct_format(self) -> str:
        """The fixed header: version, fields, sample count, a length per text, a byte per dimension."""
        codes = {1: "B", 2: "H", 4: "I", 8: "Q"}
        numbers = "".join(codes[field.width] for field in self.fields)
        return f"<B{numbers}I" + codes[self.text_width] * len(self.texts) + "B" * self.dimensions

    @property
    def header_size(self) -> int:
        numbers = sum(field.width for field in self.fields)
        return 1 + numbers + 4 + self.text_width * len(self.texts) + self.dimensions


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKind:
    """One kind of event: its stream, its dimensions, its numbers, its texts and its samples."""

    name: str
    dimensions: tuple[str, ...]
    """Names of at most 255 bytes each; together they name the subject of an event."""
    may_be_empty: frozenset[str] = frozenset()
    """Dimensions that may be empty; an event in which another one is empty is set aside."""
    fields: tuple[Field, ...] = ()
    texts: tuple[TextField, ...] = ()
    """Texts and bytes of bounded length; only a metric whose rows are not summed keeps them."""
    samples: str | None = None
    """Name of a list of 32-bit samples that ends the entry, kept as a sketch of percentiles."""
    doc: str = ""

    max_bytes: int = MAX_EVENT_BYTES
    """Longer entries are set aside."""
    earlier: tuple[tuple[Field | TextField, ...], ...] = ()
    """The fields and texts of the versions before the current one, beginning with version 1."""

    @property
    def fields_and_texts(self) -> tuple[Field | TextField, ...]:
        return (*self.fields, *self.texts)

    @property
    def version(self) -> int:
        """The number of the layout version that is written."""
        return len(self.earlier) + 1

    @property
    def layouts(self) -> tuple[EventLayout, ...]:
        """Every version that can be read, the current one last."""
        return tuple(
            EventLayout(
                version=number,
                fields=tuple(one for one in fields if isinstance(one, Field)),
                texts=tuple(one for one in fields if isinstance(one, TextField)),
                dimensions=len(self.dimensions),
            )
            for number, fields in enumerate((*self.earlier, self.fields_and_texts), start=1)
        )

    @property
    def layout(self) -> EventLayout:
        """The version that is written."""
        return self.layouts[-1]


def _count(name: str, doc: str) -> Field:
    return Field(name=name, width=4, aggregates=(Aggregate.SUM,), doc=doc)


def _gauge(name: str, doc: str, *, width: int = 4) -> Field:
    return Field(name=name, width=width, aggregates=(Aggregate.MAX, Aggregate.LAST), doc=doc)


def _measured_gauge(name: str, doc: str, *, width: int = 4) -> Field:
    """A gauge that is measured, so that its minimum and its mean say something too."""
    aggregates = (Aggregate.MAX, Aggregate.LAST, Aggregate.MIN, Aggregate.SUM)
    return Field(name=name, width=width, aggregates=aggregates, doc=doc)


def _odometer(name: str, doc: str) -> Field:
    return Field(name=name, width=8, aggregates=(Aggregate.MAX,), doc=doc)


class QueueOperation(StrEnum):
    """Which verb emitted a queue event; its position is its code on the wire."""

    ENQUEUE = "enqueue"
    DEQUEUE = "dequeue"
    ACK = "ack"
    NACK = "nack"
    EXTEND = "extend"
    EXPIRE = "expire"
    DEAD_LETTER = "dead_letter"
    PAUSE = "pause"
    RESUME = "resume"
    LAPSE = "lapse"
    HEARTBEAT = "heartbeat"
    CANCEL = "cancel"
    RUN_NOW = "run_now"
    RESCHEDULE = "reschedule"
    CHANGE_PRIORITY = "change_priority"


_COUNTED = {
    "enqueued": "Messages accepted by this call.",
    "dequeued": "Messages handed out by this call.",
    "acked": "Messages done by this call.",
    "nacked": "Messages that failed and will be tried again.",
    "dead": "Messages that went to the dead letters, expiry excepted.",
    "expired": "Messages whose TTL or maximal age passed; they are dead letters too.",
    "lapsed": "Leases that lapsed; the messages return or die.",
    "refused": "Messages refused because the queue was full.",
    "cancelled": "Messages that somebody removed while they waited or were leased.",
}
QUEUE_COUNTERS = tuple(_COUNTED)
"""The counters of a queue. Each has an odometer `<name>_total` of the same meaning.

At any instant: waiting + running = enqueued - acked - dead - expired - cancelled (all of them odometers).
"""
FINAL_COUNTERS = ("acked", "dead", "expired", "cancelled")
"""The counters of messages that left their queue for good: their odometers balance that of `enqueued`."""


def count_left(counts: Mapping[str, int]) -> int:
    """How many messages left their queue for good."""
    return sum(counts[name] for name in FINAL_COUNTERS)


def _queue_fields(counted: Sequence[str]) -> tuple[Field, ...]:
    return (
        Field(name="operation", width=1, aggregates=(), doc="Position of the verb in `QueueOperation`."),
        *(_count(name, _COUNTED[name]) for name in counted),
        _measured_gauge("queue_length", "Waiting messages: ready, delayed and waiting for a retry."),
        _measured_gauge("running", "Leased messages."),
        _gauge("queue_limit", "Concurrency limit of the queue; 0 is none."),
        _measured_gauge("environment_length", "Waiting messages of the whole environment."),
        _measured_gauge("environment_running", "Leased messages of the whole environment."),
        _gauge("environment_limit", "Concurrency limit of the environment; 0 is none."),
        _gauge("paused", "1 while the queue is paused.", width=1),
        _measured_gauge("oldest_age_ms", "Time since the oldest waiting message became available.", width=8),
        *(_odometer(f"{name}_total", f"Lifetime total of `{name}`.") for name in counted),
    )


QUEUE = EventKind(
    name="queue",
    dimensions=("organization", "project", "environment", "queue"),
    fields=_queue_fields(QUEUE_COUNTERS),
    # Version 1 did not count cancelled messages.
    earlier=(_queue_fields(QUEUE_COUNTERS[:8]),),
    samples="wait_ms",
    doc="One broker call on one queue: its counts, the gauges after it, the waits of what it handed out.",
)


def _sampled(name: str, doc: str) -> tuple[Field, Field]:
    """The two fields of a gauge that is sampled every second: its sum over the samples, and its maximum."""
    return (
        Field(name=f"{name}_sum", width=8, aggregates=(Aggregate.SUM,), doc=f"{doc} Summed over samples."),
        Field(name=f"{name}_max", width=4, aggregates=(Aggregate.MAX,), doc=f"{doc} Maximum."),
    )


WORKER = EventKind(
    name="worker",
    dimensions=("role", "hostname", "worker_id", "pid"),
    fields=(
        _count("samples", "How many one-second samples this flush holds: the weight of its sums."),
        *_sampled("event_loop_lag_us", "How late the event loop ran a timer, in microseconds."),
        Field(name="free_slots_sum", width=8, aggregates=(Aggregate.SUM,), doc="Free pool slots, summed."),
        Field(name="free_slots_min", width=4, aggregates=(Aggregate.MIN,), doc="Fewest free pool slots."),
        _gauge("pool_size", "Size of the pool."),
        *_sampled("internal_queue", "Jobs waiting inside the process."),
        *_sampled("backoff", "Messages that failed in this process and wait for their retry."),
        _count("jobs_done", "Messages whose handler succeeded; only workers have handlers."),
        _count("pushes", "Messages that this process put into queues, without refused ones and duplicates."),
        _count("pops", "Messages that this process got."),
        _count("acks", "Messages that this process acked."),
        _count("transactions", "Transactions of PostgreSQL that ended; a statement alone is one too."),
        _count("errors", "Operations of Redis, PostgreSQL or ClickHouse that failed."),
        _count("deaths", "Messages that died in a call of this process, for whatever reason."),
        _count("lag_count", "Messages whose lag was measured: all that this process got."),
        Field(name="lag_ms_sum", width=8, aggregates=(Aggregate.SUM,), doc="Lag at pop, summed."),
        Field(name="lag_ms_max", width=8, aggregates=(Aggregate.MAX,), doc="Worst lag at pop."),
    ),
    samples=None,
    doc="A process (API or worker) about itself: one-second samples, flushed every five seconds.",
)

WORKER_LAG = EventKind(
    name="worker_lag",
    dimensions=("worker_id", "organization", "project", "environment", "queue"),
    may_be_empty=frozenset({"organization", "project", "environment", "queue"}),
    fields=(),
    samples="lag_ms",
    doc=(
        "The lags of the messages that a process got from one queue, beside its worker event. The names are "
        "empty for the queues beyond the busiest of a flush, which share one event."
    ),
)

LIFE = EventKind(
    name="life",
    dimensions=QUEUE.dimensions,
    fields=(
        _count("lives", "Messages that ended and whose lives this entry holds."),
        _odometer("lives_total", "Lifetime total of `lives`."),
    ),
    texts=(
        TextField(
            name="records", max_bytes=LIFE_BYTES, binary=True, doc="The packed lives; see `telemetry.lives`."
        ),
    ),
    doc="The lives of messages that one broker call ended in one queue; several entries if they are many.",
)

LOG = EventKind(
    name="log",
    dimensions=QUEUE.dimensions,
    fields=(
        _count("lives", "Messages that ended and that this entry holds."),
        _odometer("lives_total", "Lifetime total of `lives` of the queue, the same as in its `life` events."),
        Field(name="keep_s", width=4, doc="For how many seconds after their end the log keeps them."),
    ),
    texts=(
        *LIFE.texts,
        TextField(
            name="bodies",
            max_bytes=LOG_BODIES_BYTES,
            binary=True,
            doc="Idempotency keys, headers and payloads of the messages; see `telemetry.log_bodies`.",
        ),
    ),
    max_bytes=LOG_BODIES_BYTES + MAX_EVENT_BYTES,
    doc="Messages that one broker call ended in a queue that keeps a log, with their payloads.",
)

CATALOGUE: tuple[EventKind, ...] = (QUEUE, WORKER, WORKER_LAG, LIFE, LOG)
