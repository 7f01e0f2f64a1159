"""The part of the memory broker that looks at single messages and touches them."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from weir.broker import checks
from weir.errors import InvalidInput
from weir.model.clock import Clock
from weir.model.ids import MessageId
from weir.model.inspection import (
    EVERY_MESSAGE,
    PREVIEW_BYTES,
    ListedMessage,
    MessageCounts,
    MessageDetail,
    MessageFilter,
    MessageLease,
    MessagePage,
    MessageState,
    Touched,
    Why,
    check_filter,
    check_page,
)
from weir.model.limits import RESULT_KEPT_MS
from weir.model.message import DeadMessage, Kept, KeptKind, LeaseRef, Settlement, check_message_id
from weir.model.names import EnvironmentRef, QueueRef, check_name
from weir.spec.ir import Ordering
from weir.telemetry.events import QueueOperation
from weir.testing.memory_entries import WaitingEntry
from weir.testing.memory_queue import MemoryCounts, QueueModel
from weir.testing.memory_waits import EnvironmentLogs, WaitLogs

_DELAYED = (MessageState.SCHEDULED, MessageState.RETRYING)


class MemoryMessages:
    """The methods of a `Broker` that look at single messages and touch them."""

    _clock: Clock
    _queues: dict[QueueRef, QueueModel]
    _logs: defaultdict[EnvironmentRef, EnvironmentLogs]
    _outboxes: list[dict[MessageId, DeadMessage]]
    _model: Callable[[QueueRef], QueueModel]
    _shard: Callable[[EnvironmentRef], int]
    _finish_call: Callable[..., None]
    _members: defaultdict[tuple[EnvironmentRef, str], set[int]]
    _kept: defaultdict[tuple[EnvironmentRef, MessageId], tuple[int, Kept | None]]

    # look

    async def list_messages(
        self,
        queue: QueueRef,
        state: MessageState,
        *,
        match: MessageFilter = EVERY_MESSAGE,
        cursor: str | None = None,
        limit: int = 50,
    ) -> MessagePage:
        check_filter(match)
        check_page(limit)
        place = None if cursor is None else _place_of(cursor, state)
        model = self._model(queue)
        found: list[ListedMessage] = []
        scanned = 0
        for entry in sorted(_candidates(model, state), key=lambda entry: _sort_key(model, entry, state)):
            here = _sort_key(model, entry, state)
            if cursor is not None and here <= (place or []):
                continue
            if len(found) == limit:
                return MessagePage(messages=tuple(found), cursor=_cursor(place), scanned=scanned)
            place, scanned = here, scanned + 1
            if state_of(model, entry) is state and _matches(entry, match):
                found.append(_listed(entry, state))
        return MessagePage(messages=tuple(found), cursor=None, scanned=scanned)

    async def show_message(self, queue: QueueRef, message_id: MessageId) -> MessageDetail | None:
        check_message_id(message_id)
        model = self._model(queue)
        entry = model.entries.get(message_id)
        if entry is None:
            return None
        state, message = state_of(model, entry), entry.message
        return MessageDetail(
            queue=queue,
            message_id=message.id,
            state=state,
            payload=message.payload,
            headers=message.headers,
            key=message.key,
            idempotency_key=message.idempotency_key,
            priority=entry.priority,
            attempts=entry.attempts,
            enqueued_at_ms=entry.enqueued_at_ms,
            available_at_ms=entry.available_at_ms,
            expires_at_ms=entry.expires_at_ms,
            last_error=entry.error or None,
            held=_held(entry),
            ahead=_ahead(model, entry, state),
            behind_id=model.head_of(entry).message.id if state is MessageState.BLOCKED else None,
        )

    async def why(self, queue: QueueRef, message_id: MessageId) -> Why | None:
        check_message_id(message_id)
        model = self._model(queue)
        entry = model.entries.get(message_id)
        if entry is None:
            return None
        state = state_of(model, entry)
        until = self._clock.now_ms() if entry.lease is None else entry.phases[-1][0]
        parts, leased_ms = self._waits(model).parts(model.phases_of(entry, until), until)
        return Why(
            state=state,
            enqueued_at_ms=entry.enqueued_at_ms,
            until_ms=until,
            leased_ms=leased_ms,
            parts=parts,
            behind_id=model.head_of(entry).message.id if state is MessageState.BLOCKED else None,
        )

    def _waits(self, model: QueueModel) -> WaitLogs:
        return WaitLogs(queue=model.logs, environment=self._logs[model.ref.scope])

    async def count_messages(self, queue: QueueRef) -> MessageCounts:
        model = self._model(queue)
        states = [state_of(model, entry) for entry in model.entries.values()]
        count = {state: states.count(state) for state in MessageState}
        return MessageCounts(
            ready=count[MessageState.READY],
            scheduled=count[MessageState.SCHEDULED],
            retrying=count[MessageState.RETRYING],
            delayed=sum(count[state] for state in _DELAYED),
            blocked=count[MessageState.BLOCKED],
            leased=count[MessageState.LEASED],
        )

    async def holds(self, queue: QueueRef, message_ids: Sequence[MessageId]) -> list[bool]:
        held = self._model(queue).entries.keys() | self._outboxes[self._shard(queue.scope)].keys()
        return [message_id in held for message_id in message_ids]

    async def peek(self, queue: QueueRef, message_id: MessageId) -> Mapping[str, str] | None:
        entry = self._model(queue).entries.get(message_id)
        return None if entry is None else entry.message.headers

    async def last_errors(self, queue: QueueRef, *, limit: int) -> list[str]:
        entries = self._model(queue).entries.values()
        return [entry.error for entry in entries if entry.error][:limit]

    async def find_message(self, environment: EnvironmentRef, message_id: MessageId) -> QueueRef | None:
        check_message_id(message_id)
        for queue, model in self._queues.items():
            if queue.scope == environment and message_id in model.entries:
                return queue
        return None

    async def find_idempotency_key(self, queue: QueueRef, idempotency_key: str) -> MessageId | None:
        check_name(idempotency_key, what="idempotency key")
        return self._model(queue).first_of(idempotency_key, self._clock.now_ms())

    async def keep_progress(self, lease: LeaseRef, progress: bytes) -> bool:
        checks.check_leases([lease])
        checks.check_kept(progress)
        if self._model(lease.queue).held(lease, self._clock.now_ms()) is None:
            return False
        self._keep(lease.queue.scope, lease.message_id, Kept(kind=KeptKind.PROGRESS, data=progress))
        return True

    async def kept(self, environment: EnvironmentRef, message_id: MessageId) -> Kept | None:
        check_message_id(message_id)
        until_ms, found = self._kept[environment, message_id]
        return found if until_ms > self._clock.now_ms() else None

    async def were_cancelled(
        self, environment: EnvironmentRef, message_ids: Sequence[MessageId]
    ) -> list[bool]:
        kept = [await self.kept(environment, message_id) for message_id in message_ids]
        return [one is not None and one.kind is KeptKind.CANCELLED for one in kept]

    def _keep_results(
        self, leases: Sequence[LeaseRef], answers: list[Settlement], results: Sequence[bytes | None]
    ) -> list[Settlement]:
        """Keep the results of messages that are done; return the answers."""
        for lease, answer, result in zip(leases, answers, results, strict=False):
            if answer is Settlement.DONE and result is not None:
                self._keep(lease.queue.scope, lease.message_id, Kept(kind=KeptKind.RESULT, data=result))
        return answers

    def _keep(self, environment: EnvironmentRef, message_id: MessageId, kept: Kept) -> None:
        self._kept[environment, message_id] = (self._clock.now_ms() + RESULT_KEPT_MS, kept)

    async def finish_member(self, environment: EnvironmentRef, group: str, *, member: int, of: int) -> bool:
        checks.check_member(group, member=member, of=of)
        done = self._members[environment, group]
        done.add(member)
        return len(done) >= of

    async def revoked(self, leases: Sequence[LeaseRef]) -> list[bool]:
        checks.check_leases(leases)
        now = self._clock.now_ms()
        models = [self._queues.get(lease.queue) for lease in leases]
        return [
            model is not None and model.revoked(lease, now)
            for model, lease in zip(models, leases, strict=True)
        ]

    # touch

    async def run_now(self, queue: QueueRef, message_ids: Sequence[MessageId]) -> list[Touched]:
        return self._touch(
            queue, QueueOperation.RUN_NOW, message_ids, lambda model, one, now: model.run_now(one, now)
        )

    async def reschedule(
        self,
        queue: QueueRef,
        message_ids: Sequence[MessageId],
        *,
        at_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> list[Touched]:
        checks.check_due(at_ms=at_ms, delay_ms=delay_ms)
        return self._touch(
            queue,
            QueueOperation.RESCHEDULE,
            message_ids,
            lambda model, one, now: model.reschedule(one, now, at_ms or now + (delay_ms or 0)),
        )

    async def change_priority(
        self, queue: QueueRef, message_ids: Sequence[MessageId], priority: int
    ) -> list[Touched]:
        checks.check_priority(priority)
        return self._touch(
            queue,
            QueueOperation.CHANGE_PRIORITY,
            message_ids,
            lambda model, one, now: model.change_priority(one, now, priority),
        )

    async def cancel(self, queue: QueueRef, message_ids: Sequence[MessageId]) -> list[Touched]:
        checks.check_message_ids(message_ids)
        model, counts, now = self._model(queue), MemoryCounts(), self._clock.now_ms()
        before = [await self.kept(queue.scope, message_id) for message_id in message_ids]
        answers = [model.cancel(message_id, now, counts) for message_id in message_ids]
        for message_id, answer in zip(message_ids, answers, strict=True):
            if answer is Touched.DONE or answer is Touched.REVOKED:
                self._keep(queue.scope, message_id, Kept(kind=KeptKind.CANCELLED, queue=queue.queue))
        self._finish_call(model, QueueOperation.CANCEL, counts)
        known = Kept(kind=KeptKind.CANCELLED, queue=queue.queue)
        return [
            Touched.DONE if answer is Touched.GONE and kept == known else answer
            for answer, kept in zip(answers, before, strict=True)
        ]

    def _touch(
        self,
        queue: QueueRef,
        operation: QueueOperation,
        message_ids: Sequence[MessageId],
        step: Callable[[QueueModel, MessageId, int], Touched],
    ) -> list[Touched]:
        checks.check_message_ids(message_ids)
        model, now = self._model(queue), self._clock.now_ms()
        model.moved = False
        answers = [step(model, message_id, now) for message_id in message_ids]
        if model.moved:
            self._finish_call(model, operation, MemoryCounts(), always=True)
        return answers


def state_of(model: QueueModel, entry: WaitingEntry) -> MessageState:
    if entry.lease is not None:
        return MessageState.LEASED
    if not entry.ready:
        return MessageState.RETRYING if entry.attempts > 0 else MessageState.SCHEDULED
    return MessageState.READY if model.is_head(entry) else MessageState.BLOCKED


def _candidates(model: QueueModel, state: MessageState) -> list[WaitingEntry]:
    """The messages that a walk over this state looks at: scheduled and retrying messages wait together."""
    together = _DELAYED if state in _DELAYED else (state,)
    return [entry for entry in model.entries.values() if state_of(model, entry) in together]


def _sort_key(model: QueueModel, entry: WaitingEntry, state: MessageState) -> list[Any]:
    """The place of a message among the messages of its state."""
    by_time = [entry.available_at_ms, entry.sequence or 0, entry.message.id]
    if state is MessageState.LEASED:
        return [entry.message.id]
    if state is MessageState.BLOCKED:
        key = (entry.message.key or "") if model.spec.ordering is Ordering.PER_KEY else ""
        return [len(key.encode()), key.encode().hex(), entry.sequence or 0]
    if state is MessageState.READY and model.spec.ordering is Ordering.UNORDERED:
        return [-entry.priority, *by_time]
    return by_time


def _cursor(place: list[Any] | None) -> str:
    return urlsafe_b64encode(orjson.dumps(place)).decode()


def _place_of(cursor: str, state: MessageState) -> list[Any]:
    try:
        place = orjson.loads(urlsafe_b64decode(cursor.encode("ascii")))
    except (binascii.Error, ValueError):
        place = None
    if not isinstance(place, list):
        raise InvalidInput(f"`{cursor:.40}` is not a cursor of {state} messages; begin without one")
    return place


def _matches(entry: WaitingEntry, match: MessageFilter) -> bool:
    message = entry.message
    return (
        (match.key is None or message.key == match.key)
        and (match.header is None or message.headers.get(match.header[0]) == match.header[1])
        and (match.text is None or match.text in message.payload)
    )


def _listed(entry: WaitingEntry, state: MessageState) -> ListedMessage:
    message = entry.message
    return ListedMessage(
        message_id=message.id,
        state=state,
        key=message.key,
        headers=message.headers,
        priority=entry.priority,
        attempts=entry.attempts,
        enqueued_at_ms=entry.enqueued_at_ms,
        available_at_ms=entry.available_at_ms,
        expires_at_ms=entry.expires_at_ms,
        preview=message.payload[:PREVIEW_BYTES],
        payload_bytes=len(message.payload),
        last_error=entry.error.encode()[:PREVIEW_BYTES].decode(errors="ignore") or None,
        held=_held(entry),
    )


def _held(entry: WaitingEntry) -> MessageLease | None:
    lease = entry.lease
    return None if lease is None else MessageLease(consumer=lease.consumer, until_ms=lease.until_ms)


def _ahead(model: QueueModel, entry: WaitingEntry, state: MessageState) -> int | None:
    """How many messages are before it in its line."""
    if state is MessageState.LEASED:
        return None
    if state is MessageState.BLOCKED:
        return 1 + sum(
            1
            for other in _candidates(model, state)
            if model.head_of(other) is model.head_of(entry) and (other.sequence or 0) < (entry.sequence or 0)
        )
    mine = _sort_key(model, entry, state)
    return sum(1 for other in _candidates(model, state) if _sort_key(model, other, state) < mine)
