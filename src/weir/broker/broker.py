"""The broker seam: where messages wait. Two implementations, `redis` and `weir.testing`'s memory broker.

The closed list of verbs, each spelled alike in the Lua file, the method, the event and the metric:
enqueue, dequeue, ack, nack, extend, expire, dead_letter, pause, resume, run_now, reschedule, change_priority,
cancel. The other methods describe queues, look at messages, and hand over dead messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from weir.model.ids import MessageId, NamedCall
from weir.model.inspection import (
    EVERY_MESSAGE,
    MessageCounts,
    MessageDetail,
    MessageFilter,
    MessagePage,
    MessageState,
    Touched,
    Why,
)
from weir.model.limits import MAX_BATCH
from weir.model.message import (
    DeadMessage,
    Delivery,
    Enqueue,
    Enqueued,
    Failure,
    Kept,
    LeaseRef,
    NewMessage,
    QueueState,
    Settlement,
)
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import QueueSpec

HEARTBEAT_MS = 5_000
"""After this long without a touch a queue that holds messages gets a heartbeat."""


@dataclass(frozen=True, slots=True)
class Shard:
    """All queues of all tenants of one shard, served fairly."""

    number: int


Source = QueueRef | EnvironmentRef | Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one round of the sweepers did in a shard."""

    lapsed: int
    expired: int
    dead: int
    orphans: int
    more: bool
    """A bound was reached; call again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """A queued operation that keeps the gate of its partition closed."""

    key: str | None
    operation: str
    messages: int = 0
    """How many messages it will bring."""


class GateRule(Enum):
    """How an enqueue call without a name meets the gates of its partitions."""

    OBEY = "obey"
    """A message is GATED while the gate of its partition is closed."""
    PASS = "pass"
    """Gates are ignored: for replays and copies of deaths. `deadletters/replay.py` says why order holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForOperations:
    """An enqueue call for queued operations: `ids` names the operation of each message.

    Messages of one operation stand side by side. The gate of a key holds, for each operation that closed it,
    how many of its messages were put in. A message whose operation is not on that gate is GATED (someone
    else finished it). A message that was put in before is a DUPLICATE of itself. Each further message is put
    in and counted in the same script, until one is FULL. So an operation that is taken over, or that found no
    room, never pushes a message twice.
    """

    ids: Sequence[str]


Entry = GateRule | NamedCall | ForOperations
"""On whose behalf messages enter a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAnswer:
    """What a named call did with one message."""

    outcome: Enqueue
    original_id: MessageId | None = None
    """Of a DUPLICATE or KEY_REUSED: the message that came first under its key."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do for the message."""
        return self.outcome not in (Enqueue.FULL, Enqueue.GATED)


class BrokerActivity(Protocol):
    """Counts what a process does with messages; `telemetry.process_counts` implements it."""

    def count_pushes(self, count: int) -> None: ...

    def count_pops(self, deliveries: Sequence[Delivery]) -> None: ...

    def count_acks(self, count: int) -> None: ...

    def count_deaths(self, count: int) -> None: ...

    def count_retries(self, delays_ms: Sequence[int]) -> None: ...

    def count_error(self) -> None: ...


class Broker(Protocol):
    """Batch-first: one call moves up to `MAX_BATCH` messages and answers for each in order."""

    @property
    def shards(self) -> int: ...

    async def define(self, queue: QueueRef, spec: QueueSpec) -> None:
        """Create the queue, or change what it promises from now on. Every other verb needs this first."""

    async def forget(self, queue: QueueRef) -> None:
        """Remove an empty queue. Conflict while it holds messages.

        Its odometers are kept: a queue of that name goes on counting where this one stopped.
        """

    async def limit(self, environment: EnvironmentRef, concurrency: int | None) -> None:
        """Set how many messages of an environment may be leased at once."""

    async def enqueue(
        self,
        queue: QueueRef,
        messages: Sequence[NewMessage],
        *,
        entry: Entry = GateRule.OBEY,
    ) -> list[Enqueued]:
        """Put messages in. `entry` says on whose behalf, and so which gates bind them."""

    async def dequeue(
        self,
        source: Source,
        *,
        consumer: str,
        limit: int = 1,
        lease_ms: int | None = None,
        wait_ms: int = 0,
    ) -> list[Delivery]:
        """Hand out messages under leases; with `wait_ms`, wait that long for the first one."""

    async def ack(
        self, leases: Sequence[LeaseRef], *, results: Sequence[bytes | None] = ()
    ) -> list[Settlement]:
        """Done: remove the messages for good. `results` is empty or has one per lease; None is not kept.

        A settlement that is asked for again soon, because its answer was lost, gets the same answer and
        changes nothing. That holds for `nack` and `dead_letter` too, and for `cancel` while `kept` knows it.
        """

    async def nack(self, failures: Sequence[Failure]) -> list[Settlement]:
        """Failed: wait for the next attempt, or die after the last one."""

    async def extend(self, leases: Sequence[LeaseRef], *, lease_ms: int) -> list[Settlement]:
        """Keep the leases for `lease_ms` more, counted from now."""

    async def dead_letter(self, failures: Sequence[Failure]) -> list[Settlement]:
        """Give up on the messages at once, whatever attempts are left."""

    async def pause(self, queue: QueueRef) -> None:
        """Hand out nothing more until `resume`; leased messages may still be settled."""

    async def resume(self, queue: QueueRef) -> None: ...

    async def sweep(self, shard: int, *, limit: int = 1_000) -> Swept:
        """Return messages whose lease lapsed, expire messages that are too old, drop orphans.

        The work of a call is bounded. Any process may call it at any time.
        """

    async def heartbeat(self, shard: int, *, limit: int = 1_000) -> int:
        """Emit the gauges of non-empty queues that nobody touched for a while; return how many."""

    async def state(self, queue: QueueRef) -> QueueState: ...

    async def states(self, environment: EnvironmentRef) -> list[QueueState]:
        """Every defined queue of an environment, by name."""

    async def take_dead(self, shard: int, *, limit: int = 1_000) -> list[DeadMessage]:
        """The oldest unmoved dead; they stay in the broker until `drop_dead`."""

    async def drop_dead(self, shard: int, message_ids: Sequence[MessageId]) -> None:
        """Forget dead messages that were moved elsewhere. Unknown ids are ignored."""

    async def holds(self, queue: QueueRef, message_ids: Sequence[MessageId]) -> list[bool]:
        """Which of these messages wait, are leased or are unmoved dead; the others are done or never came."""

    async def peek(self, queue: QueueRef, message_id: MessageId) -> Mapping[str, str] | None:
        """The headers of a message that waits or is leased; None if it does neither."""

    async def last_errors(self, queue: QueueRef, *, limit: int) -> list[str]:
        """The last errors of messages that failed before and are not done yet: a sample, in any order."""

    async def list_messages(
        self,
        queue: QueueRef,
        state: MessageState,
        *,
        match: MessageFilter = EVERY_MESSAGE,
        cursor: str | None = None,
        limit: int = 50,
    ) -> MessagePage:
        """A page of the messages in one state, with previews of payloads; the next page begins at its cursor.

        A message that stays in its state during the walk is shown exactly once. Each call does bounded work,
        so a page may hold fewer messages than asked for, or none, before the end. Ready messages are in the
        order in which they will be handed out, scheduled and retrying messages in the order in which they
        become available, blocked messages by key and place, leased messages by id. Conflict if more than
        100,000 are leased.
        """

    async def show_message(self, queue: QueueRef, message_id: MessageId) -> MessageDetail | None:
        """All that is known of a message that waits or is leased; None if it does neither."""

    async def why(self, queue: QueueRef, message_id: MessageId) -> Why | None:
        """How long a message that waits or is leased has waited, and for what; None if it does neither."""

    async def count_messages(self, queue: QueueRef) -> MessageCounts:
        """How many messages are in each state."""

    async def find_message(self, environment: EnvironmentRef, message_id: MessageId) -> QueueRef | None:
        """The queue where a message waits or is leased; None if it does neither in this environment."""

    async def keep_progress(self, lease: LeaseRef, progress: bytes) -> bool:
        """Keep what a handler tells of its progress; False if the lease is not held any more."""

    async def kept(self, environment: EnvironmentRef, message_id: MessageId) -> Kept | None:
        """The result or progress of a message, or that it was cancelled; None after a day."""

    async def were_cancelled(
        self, environment: EnvironmentRef, message_ids: Sequence[MessageId]
    ) -> list[bool]:
        """Which messages were cancelled, for as long as `kept` knows it. Takes any number of ids."""

    async def finish_member(self, environment: EnvironmentRef, group: str, *, member: int, of: int) -> bool:
        """Note that a member of a group of tasks is done; return whether all `of` members are.

        May be repeated.
        """

    async def find_idempotency_key(self, queue: QueueRef, idempotency_key: str) -> MessageId | None:
        """The first message that came with this key within its window, whether it ended since or not."""

    async def run_now(self, queue: QueueRef, message_ids: Sequence[MessageId]) -> list[Touched]:
        """Let scheduled and retrying messages be available now; DONE also for a message that already is."""

    async def reschedule(
        self,
        queue: QueueRef,
        message_ids: Sequence[MessageId],
        *,
        at_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> list[Touched]:
        """Let waiting messages be available at another time, or after a delay.

        A message that has to wait longer also expires later, by as much. Order holds in an ordered queue. The
        head of a key that must wait remains its head, so the others of its key wait with it, as they do for a
        retry. A message behind a head is BLOCKED, and stays. A scheduled message has no place in the order
        yet.
        """

    async def change_priority(
        self, queue: QueueRef, message_ids: Sequence[MessageId], priority: int
    ) -> list[Touched]:
        """Let waiting messages be served earlier or later; in an ordered queue they are ORDERED, and stay."""

    async def cancel(self, queue: QueueRef, message_ids: Sequence[MessageId]) -> list[Touched]:
        """Remove waiting and leased messages for good; they are counted as cancelled.

        The lease of a leased message is revoked: settling it changes nothing, `extend` answers CANCELLED, and
        `revoked` answers True until the lease would have ended. The next of its key may be handed out.
        """

    async def revoked(self, leases: Sequence[LeaseRef]) -> list[bool]:
        """Which of these leases were revoked, because their messages were cancelled; asking is cheap."""

    async def close_gates(
        self, queue: QueueRef, gates: Sequence[Gated], *, within_room: bool = False
    ) -> list[int | None]:
        """Let enqueue into these partitions answer GATED, until each operation that closed a gate opened it.

        The messages of an operation count as waiting until it put them in or opened its gate, so that a queue
        is FULL for everybody else at `max_depth`. The answer is how many messages each operation may bring:
        all, or with `within_room` as many as the queue has room for. An operation that wants to bring some
        messages and may bring none does not close its gate. Messages that may not come count as refused.
        Closing again changes nothing. None: the operation is void (see `void_gates`), and closes nothing.
        """

    async def open_gates(self, queue: QueueRef, gates: Sequence[Gated]) -> None:
        """Take these operations off their gates; messages that they did not put in will not come."""

    async def void_gates(self, queue: QueueRef, gates: Sequence[Gated]) -> list[bool]:
        """Make each operation void, so that it never runs, unless some of its messages were put in before.

        True: it is void, its gate is open, and cannot be closed for it again. False: it runs, or is finished.
        A process that does not know whether PostgreSQL took an operation needs this to say that it will not
        run.
        """

    async def stale_gates(
        self, shard: int, *, older_ms: int, skip: int = 0, limit: int = MAX_BATCH
    ) -> list[tuple[QueueRef, Gated]]:
        """Gates that were closed at least `older_ms` ago and still are, the oldest first."""

    async def settle_call(self, queue: QueueRef, call: NamedCall) -> list[CallAnswer]:
        """What the call did with each of its messages.

        Empty if the call never arrived. Its slot then remembers it as void, so that it never takes effect.
        CallStale if the slot remembers a later call, and KeyReused if it knows this one with other messages.
        """

    async def idle_calls(self, shard: int, *, idle_ms: int) -> list[str]:
        """Slots whose last call was at least `idle_ms` ago, by the broker's clock."""

    async def forget_calls(self, shard: int, slots: Sequence[str], *, idle_ms: int) -> int:
        """Forget the slots that were not used again for `idle_ms`; return how many.

        The caller knows that nobody will ask about their calls, and that no bytes of a call are on their way.
        """

    async def now_ms(self, shard: int) -> int:
        """The store's own clock."""

    async def allow_direct(self, shard: int, *, until_ms: int) -> None:
        """Allow pushes without asking PostgreSQL until this time of the store's clock, never an earlier one.

        If this was never called, they are always allowed. Once the allowance lapsed, a `NamedCall` is GATED.
        Any other enqueue does not come from a producer, and only gates bind it.
        """

    async def forbid_direct(self, shard: int) -> None:
        """End the direct allowance, until `allow_direct` is called again."""

    async def let_lapse(self, shard: int, *, until_ms: int) -> None:
        """Let leases lapse that ended by this time of the store's clock, and never take that back.

        If this was never called, leases lapse when they end. A lease that has ended and may not
        lapse is still its holder's. A shard whose caller is missed for `KEPT_MS` goes on alone.
        """

    async def aclose(self) -> None: ...
