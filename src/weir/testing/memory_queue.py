"""One queue of the memory broker: the rules of waiting, leasing and dying, as plainly as they can be put.

This is the model that the Redis scripts are tested against, so it prefers obvious to fast. Time comes
in as an argument; nothing here waits, and nothing here knows of other queues.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from weir.model.handling import error_text
from weir.model.ids import MessageId
from weir.model.inspection import Touched
from weir.model.lives import AttemptEnd, LifeOutcome
from weir.model.message import (
    DeadMessage,
    DeathReason,
    Delivery,
    Enqueue,
    Enqueued,
    Failure,
    LeaseRef,
    NewMessage,
    Settlement,
)
from weir.model.names import QueueRef
from weir.spec.ir import Ordering, QueueSpec
from weir.telemetry.events import QUEUE_COUNTERS
from weir.testing.memory_entries import Lease, WaitingEntry, dead_message_of, delivery_of
from weir.testing.memory_lapses import LapseHorizon
from weir.testing.memory_lives import EndedMessage, attempts_now, ended_message, keeps_life
from weir.testing.memory_waits import MessagePhase, QueueLogs


@dataclass(slots=True)
class MemoryCounts:
    """What one call did to one queue; the same names as the odometers."""

    values: dict[str, int] = field(default_factory=lambda: dict.fromkeys(QUEUE_COUNTERS, 0))

    def add(self, name: str, by: int = 1) -> None:
        self.values[name] += by

    def __bool__(self) -> bool:
        return any(self.values.values())


class QueueModel:
    """The state of one queue and every change that it allows."""

    def __init__(self, ref: QueueRef, spec: QueueSpec, horizon: LapseHorizon) -> None:
        self.ref = ref
        self._horizon = horizon
        self.spec = spec
        self.paused = False
        self.popped = False
        self.entries: dict[str, WaitingEntry] = {}
        self.odometers: dict[str, int] = dict.fromkeys(QUEUE_COUNTERS, 0)
        self.logs = QueueLogs()
        self.moved = False
        """Whether this call moved a waiting message; the broker sets it back."""
        self.outbox: list[DeadMessage] = []
        """Messages that died in this call; the broker takes them to the unmoved dead of the shard."""
        self.ended: list[EndedMessage] = []
        """Messages that ended in this call and whose lives are kept; the broker writes the lives down."""
        self._former_heads: dict[tuple[str, str], MessageId] = {}
        """The heads that ended since the last `note`, by their ordering key."""
        self._sequence = 0
        self._seen: dict[str, tuple[str, bytes, int]] = {}
        self._revoked: dict[tuple[str, str], int] = {}
        """Leases of cancelled messages, and when they would have ended."""

    def count(self, counts: MemoryCounts, name: str) -> None:
        counts.add(name)
        self.odometers[name] += 1

    # what is where

    def waiting(self) -> Iterator[WaitingEntry]:
        return (entry for entry in self.entries.values() if entry.lease is None)

    @property
    def depth(self) -> int:
        return sum(1 for _ in self.waiting())

    @property
    def running(self) -> int:
        return len(self.entries) - self.depth

    def delayed(self, now: int) -> int:
        return sum(1 for entry in self.waiting() if not entry.ready and entry.available_at_ms > now)

    def oldest_age(self, now: int) -> int:
        return max(0, max((now - entry.available_at_ms for entry in self.waiting()), default=0))

    def heads(self) -> list[WaitingEntry]:
        """Messages that may be handed out now, in order; in an ordered queue the first of each free key."""
        ready = [entry for entry in self.waiting() if entry.ready]
        if self.spec.ordering is Ordering.UNORDERED:
            return sorted(ready, key=lambda entry: (-entry.priority, *self._place(entry)))
        firsts: dict[tuple[str, str], WaitingEntry] = {}
        for entry in sorted(ready, key=lambda entry: entry.sequence or 0):
            firsts.setdefault(self._order_key(entry), entry)
        blocked = {self._order_key(entry) for entry in self.entries.values() if self._blocks(entry)}
        return sorted((e for key, e in firsts.items() if key not in blocked), key=self._place)

    # Each ready message of an unordered queue is a head. Looking for it among the sorted heads cost a sort
    # per message: a push of 10,000 messages took 38 s.

    def is_head(self, entry: WaitingEntry) -> bool:
        """Whether a ready message may be handed out now."""
        return self.spec.ordering is Ordering.UNORDERED or entry in self.heads()

    def _has_head(self) -> bool:
        if self.spec.ordering is Ordering.UNORDERED:
            return any(entry.ready for entry in self.waiting())
        return bool(self.heads())

    def _place(self, entry: WaitingEntry) -> tuple[int, int]:
        return entry.available_at_ms, entry.sequence or 0

    def _order_key(self, entry: WaitingEntry) -> tuple[str, str]:
        """Messages with the same ordering key keep their order. A message without a key has its own."""
        if self.spec.ordering is Ordering.FIFO:
            return "queue", ""
        key = entry.message.key
        return ("message", entry.message.id) if key is None else ("key", key)

    def _blocks(self, entry: WaitingEntry) -> bool:
        """Whether the others of its key wait for it: it is leased, or waits for a retry or another time."""
        return entry.lease is not None or (entry.sequence is not None and not entry.ready)

    def phases_of(self, entry: WaitingEntry, now: int) -> list[tuple[int, MessagePhase]]:
        """Its phases. If its time has come and nobody placed it yet, the phases as if somebody had."""
        if entry.lease is not None or entry.ready or entry.available_at_ms >= now:
            return entry.phases
        others = (one for one in self.entries.values() if self._order_key(one) == self._order_key(entry))
        is_free = (
            self.spec.ordering is Ordering.UNORDERED
            or entry.sequence is not None
            or all(one.sequence is None for one in others)
        )
        return [
            *entry.phases,
            (entry.available_at_ms, MessagePhase.FREE if is_free else MessagePhase.BLOCKED),
        ]

    def head_of(self, entry: WaitingEntry) -> WaitingEntry:
        """The head of its ordering key: leased, waiting for a retry, or the first in line."""
        same = [one for one in self.entries.values() if self._order_key(one) == self._order_key(entry)]
        placed = [one for one in same if one.sequence is not None]
        return min(placed, key=lambda one: (not self._blocks(one), one.sequence or 0))

    @property
    def servable(self) -> bool:
        return not self.paused and self.room > 0 and self._has_head()

    @property
    def room(self) -> int:
        limit = self.spec.concurrency
        return len(self.entries) if limit is None else limit - self.running

    # in

    def room_for(self, reserved: int) -> float:
        """How many messages the queue has room for, beside the messages that queued operations will bring."""
        max_depth = self.spec.retention.max_depth
        return math.inf if max_depth is None else max_depth - self.depth - reserved

    def enqueue(
        self, message: NewMessage, now: int, counts: MemoryCounts, *, gated: bool = False, reserved: int = 0
    ) -> Enqueued:
        first = self._first_with_key(message, now)
        if first is not None:
            return first
        if not gated and message.id in self.entries:
            return Enqueued(outcome=Enqueue.DUPLICATE, message_id=message.id)
        if self.room_for(reserved) < 1:
            self.count(counts, "refused")
            return Enqueued(outcome=Enqueue.FULL, message_id=message.id)
        if gated:
            return Enqueued(outcome=Enqueue.GATED, message_id=message.id)
        self._accept(message, now)
        self.count(counts, "enqueued")
        return Enqueued(outcome=Enqueue.ACCEPTED, message_id=message.id)

    def original_id(self, message: NewMessage, now: int) -> MessageId:
        """The id of the first message with its idempotency key; its own if none is known."""
        first = self._first_with_key(message, now)
        return message.id if first is None else first.message_id

    def _first_with_key(self, message: NewMessage, now: int) -> Enqueued | None:
        """The answer for a message whose idempotency key was used within the window."""
        if message.idempotency_key is None:
            return None
        seen = self._seen.get(message.idempotency_key)
        if seen is None or seen[2] <= now:
            return None
        same = seen[1] == _digest(message.payload)
        outcome = Enqueue.DUPLICATE if same else Enqueue.KEY_REUSED
        return Enqueued(outcome=outcome, message_id=type(message.id)(seen[0]))

    def _accept(self, message: NewMessage, now: int) -> None:
        available = max(message.deliver_at_ms or 0, now + (message.delay_ms or 0))
        spans = (self.spec.retention.message_age_ms, message.ttl_ms, self.spec.message_ttl_ms)
        span = min(span for span in spans if span is not None)
        entry = WaitingEntry(
            message=message,
            priority=self.spec.priority if message.priority is None else message.priority,
            enqueued_at_ms=now,
            available_at_ms=available,
            first_available_at_ms=available,
            expires_at_ms=available + span,
        )
        self.entries[message.id] = entry
        entry.phases.append((now, MessagePhase.SCHEDULED))
        if available <= now:
            self._make_ready(entry, now)
        if message.idempotency_key is not None:
            window_ms = self.spec.idempotency_window_ms
            until = now + min(window_ms, message.idempotency_window_ms or window_ms)
            self._seen[message.idempotency_key] = (message.id, _digest(message.payload), until)

    def _make_ready(self, entry: WaitingEntry, at: int) -> None:
        entry.ready = True
        if entry.sequence is None or self.spec.ordering is Ordering.UNORDERED:
            self._sequence += 1
            entry.sequence = self._sequence
        entry.phases.append((at, MessagePhase.FREE if self.is_head(entry) else MessagePhase.BLOCKED))

    def note(self, now: int) -> None:
        """Log what holds from now on: which messages are heads, and what keeps the queue from serving."""
        self.logs.paused.note(now, self.paused)
        self.logs.limited.note(now, self.spec.concurrency is not None and self.room <= 0)
        self._free_heads(now)

    def _free_heads(self, now: int) -> None:
        """Messages that have become heads wait for nobody from now on; each notes its former head."""
        if self.spec.ordering is not Ordering.UNORDERED:
            for entry in self.heads():
                if entry.phases[-1][1] is MessagePhase.BLOCKED:
                    entry.phases.append((now, MessagePhase.FREE))
                    entry.blocked_by_id = self._former_heads.get(self._order_key(entry))
        self._former_heads.clear()

    # out

    def serve(
        self,
        *,
        limit: int,
        room: int,
        now: int,
        lease_ms: int | None,
        consumer: str,
        token: str,
        counts: MemoryCounts,
    ) -> list[Delivery]:
        """Hand out up to `limit` messages, and no more than fit into `room` bytes, but one in any case.

        Messages that are too old expire instead.
        """
        if self.paused:
            return []
        deliveries: list[Delivery] = []
        for entry in self.heads()[: max(0, min(limit, self.room))]:
            if entry.expires_at_ms <= now:
                self._expire(entry, now, counts)
                continue
            room -= len(entry.message.payload)
            if deliveries and room < 0:
                break
            until = now + (lease_ms or self.spec.delivery.lease_ms)
            entry.lease = Lease(token=token, consumer=consumer, from_ms=now, until_ms=until)
            entry.ready = False
            entry.attempts += 1
            entry.phases.append((now, MessagePhase.LEASED))
            self.count(counts, "dequeued")
            deliveries.append(delivery_of(self.ref, entry, entry.lease, now))
        return deliveries

    # settled

    def held(self, ref: LeaseRef, now: int) -> WaitingEntry | None:
        """The message under this lease, unless the lease lapsed or is someone else's."""
        entry = self.entries.get(ref.message_id)
        if entry is None or entry.lease is None or entry.lease.token != ref.token:
            return None
        return None if self._over(entry.lease, now) else entry

    def _over(self, lease: Lease, now: int) -> bool:
        return lease.until_ms <= now and lease.until_ms <= self._horizon.at(now)

    def ack(self, ref: LeaseRef, now: int, counts: MemoryCounts) -> Settlement:
        entry = self.held(ref, now)
        if entry is None:
            return Settlement.LAPSED
        self._end(entry, now, LifeOutcome.ACKED, lease_end=AttemptEnd.ACKED, handler_ms=ref.handler_ms)
        self.count(counts, "acked")
        return Settlement.DONE

    def extend(self, ref: LeaseRef, now: int, lease_ms: int) -> Settlement:
        entry = self.held(ref, now)
        if entry is None or entry.lease is None:
            return Settlement.CANCELLED if self.revoked(ref, now) else Settlement.LAPSED
        entry.lease.until_ms = now + lease_ms
        return Settlement.DONE

    def nack(self, failure: Failure, now: int, chance: float, counts: MemoryCounts) -> Settlement:
        entry = self.held(failure.lease, now)
        if entry is None:
            return Settlement.LAPSED
        entry.error = error_text(failure.error) or entry.error
        if failure.uncounted:
            entry.attempts -= 1
        elif entry.attempts >= self.spec.delivery.max_attempts:
            self._die(entry, now, DeathReason.ATTEMPTS, AttemptEnd.FAILED, failure.lease.handler_ms)
            self.count(counts, "dead")
            return Settlement.DEAD
        delay = self._backoff(entry.attempts, chance) if failure.delay_ms is None else failure.delay_ms
        entry.past_attempts += attempts_now(entry, now, AttemptEnd.FAILED)
        entry.lease = None
        entry.phases.append((now, MessagePhase.BACKOFF if entry.attempts > 0 else MessagePhase.SCHEDULED))
        entry.available_at_ms = now + delay
        self.count(counts, "nacked")
        return Settlement.DONE

    def _backoff(self, attempts: int, chance: float) -> int:
        policy = self.spec.delivery
        delay = min(policy.initial_backoff_ms * 2 ** max(0, min(attempts - 1, 40)), policy.max_backoff_ms)
        return int(delay - delay * policy.jitter * chance)

    def dead_letter(self, failure: Failure, now: int, counts: MemoryCounts) -> Settlement:
        entry = self.held(failure.lease, now)
        if entry is None:
            return Settlement.LAPSED
        entry.error = error_text(failure.error) or entry.error
        self._die(entry, now, DeathReason.REJECTED, AttemptEnd.REJECTED, failure.lease.handler_ms)
        self.count(counts, "dead")
        return Settlement.DONE

    def _end(
        self,
        entry: WaitingEntry,
        now: int,
        outcome: LifeOutcome,
        *,
        reason: DeathReason | None = None,
        lease_end: AttemptEnd = AttemptEnd.CANCELLED,
        handler_ms: int | None = None,
    ) -> None:
        """Remove a message for good, and note its life if the queue keeps it."""
        message = entry.message
        if keeps_life(self.spec.history, message.id):
            phases = self.phases_of(entry, now)
            ended = ended_message(
                self.ref, entry, now, phases, outcome=outcome, lease_end=lease_end, handler_ms=handler_ms
            )
            self.ended.append(replace(ended, reason=reason))
        if entry.sequence is not None and entry.phases[-1][1] is not MessagePhase.BLOCKED:
            self._former_heads[self._order_key(entry)] = message.id
        del self.entries[message.id]

    def _die(
        self,
        entry: WaitingEntry,
        now: int,
        reason: DeathReason,
        lease_end: AttemptEnd = AttemptEnd.LAPSED,
        handler_ms: int | None = None,
    ) -> None:
        outcome = LifeOutcome.EXPIRED if reason is DeathReason.EXPIRED else LifeOutcome.DEAD
        self._end(entry, now, outcome, reason=reason, lease_end=lease_end, handler_ms=handler_ms)
        max_attempts = self.spec.delivery.max_attempts
        self.outbox.append(dead_message_of(self.ref, entry, reason, max_attempts=max_attempts, now=now))

    # touched

    def run_now(self, message_id: str, now: int) -> Touched:
        """Let a message be available now; an available message stays where it is."""
        entry = self._untouchable(message_id)
        if isinstance(entry, Touched):
            return entry
        if not entry.ready:
            self._move(entry, now, available=now)
        return Touched.DONE

    def reschedule(self, message_id: str, now: int, due: int) -> Touched:
        entry = self._untouchable(message_id)
        if isinstance(entry, Touched):
            return entry
        if entry.ready and not self.is_head(entry):
            return Touched.BLOCKED
        if due > now or not entry.ready:
            due = max(due, now)
            entry.expires_at_ms += max(0, due - max(now, entry.available_at_ms))
            self._move(entry, now, available=due)
        return Touched.DONE

    def change_priority(self, message_id: str, now: int, priority: int) -> Touched:
        entry = self._untouchable(message_id)
        if isinstance(entry, Touched):
            return entry
        if self.spec.ordering is not Ordering.UNORDERED:
            return Touched.ORDERED
        if entry.priority != priority:
            entry.priority = priority
            self._move(entry, now, available=entry.available_at_ms)
        return Touched.DONE

    def _untouchable(self, message_id: str) -> WaitingEntry | Touched:
        """The message if it waits; else why it cannot be moved."""
        entry = self.entries.get(message_id)
        if entry is None:
            return Touched.GONE
        return entry if entry.lease is None else Touched.LEASED

    def _move(self, entry: WaitingEntry, now: int, *, available: int) -> None:
        self.moved = True
        entry.phases = list(self.phases_of(entry, now))
        entry.available_at_ms = available
        entry.ready = False
        if available <= now:
            self._make_ready(entry, now)
        else:
            entry.phases.append((now, MessagePhase.BACKOFF if entry.attempts > 0 else MessagePhase.SCHEDULED))

    def cancel(self, message_id: str, now: int, counts: MemoryCounts) -> Touched:
        entry = self.entries.get(message_id)
        if entry is None:
            return Touched.GONE
        self._end(entry, now, LifeOutcome.CANCELLED)
        self.count(counts, "cancelled")
        lease = entry.lease
        if lease is None or lease.until_ms <= now:
            return Touched.DONE
        self._revoked[message_id, lease.token] = lease.until_ms
        return Touched.REVOKED

    def revoked(self, ref: LeaseRef, now: int) -> bool:
        return self._revoked.get((ref.message_id, ref.token), 0) > now

    def first_of(self, idempotency_key: str, now: int) -> MessageId | None:
        """The first message that came with this idempotency key within its window."""
        seen = self._seen.get(idempotency_key)
        return MessageId(seen[0]) if seen is not None and seen[2] > now else None

    # time passes

    def bring_back(self, now: int, counts: MemoryCounts) -> None:
        """Return messages whose lease lapsed, and place messages whose time has come."""
        lapsed = [e for e in self.entries.values() if e.lease is not None and self._over(e.lease, now)]
        for entry in sorted(lapsed, key=lambda e: (e.lease.until_ms if e.lease else 0, e.message.id)):
            self._lapse(entry, now, counts)
        due = [e for e in self.waiting() if not e.ready and e.available_at_ms <= now]
        for entry in sorted(due, key=lambda e: (e.available_at_ms, e.sequence or 0, e.message.id)):
            self._make_ready(entry, entry.available_at_ms)

    def expire(self, now: int, counts: MemoryCounts) -> None:
        """Expire messages that are too old, and forget old idempotency keys and revoked leases."""
        self._free_heads(now)
        expired = [e for e in self.waiting() if e.expires_at_ms <= now]
        for entry in sorted(expired, key=lambda e: (e.expires_at_ms, e.message.id)):
            self._expire(entry, now, counts)
        self._seen = {key: seen for key, seen in self._seen.items() if seen[2] > now}
        self._revoked = {lease: until for lease, until in self._revoked.items() if until > now}

    def _lapse(self, entry: WaitingEntry, now: int, counts: MemoryCounts) -> None:
        lease = entry.lease
        if lease is None:
            return
        self.count(counts, "lapsed")
        if entry.attempts >= self.spec.delivery.max_attempts:
            entry.error = entry.error or f"the lease of `{lease.consumer}` lapsed"
            self._die(entry, now, DeathReason.LAPSED)
            self.count(counts, "dead")
            return
        entry.past_attempts += attempts_now(entry, now, AttemptEnd.LAPSED)
        entry.lease = None
        entry.available_at_ms = lease.until_ms
        self._make_ready(entry, lease.until_ms)

    def _expire(self, entry: WaitingEntry, now: int, counts: MemoryCounts) -> None:
        self._die(entry, now, DeathReason.EXPIRED)
        # The next of its key may be too old as well, and then names this message as its former head.
        self._free_heads(now)
        self.count(counts, "expired")

    def next_change_ms(self, now: int) -> int | None:
        """When time alone will next change this queue; None if it never will."""
        leases = [e.lease for e in self.entries.values() if e.lease is not None]
        # A lease that has ended and may not lapse yet: `let_lapse` wakes up who waits.
        times = [one.until_ms for one in leases if one.until_ms > now or self._over(one, now)]
        times += [e.expires_at_ms for e in self.waiting()]
        times += [e.available_at_ms for e in self.waiting() if not e.ready]
        return max(min(times), now) if times else None


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()
