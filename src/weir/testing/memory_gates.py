"""Gates, calls and allowances of the memory broker: what keeps direct and queued enqueues in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weir.broker import checks
from weir.broker.broker import CallAnswer, Gated
from weir.model.ids import MessageId, NamedCall
from weir.model.message import Enqueue, Enqueued, NewMessage
from weir.model.names import QueueRef

Put = Callable[[NewMessage], Enqueued]


@dataclass(slots=True, kw_only=True)
class _Held:
    """One operation on a gate."""

    total: int
    """How many messages it was to bring."""
    closed_at_ms: int
    put: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remembered:
    """The last call of a slot."""

    id: str
    digest: bytes
    answers: list[CallAnswer]
    """Empty for a void call."""
    at_ms: int


_NAME_ANOTHER = (Enqueue.DUPLICATE, Enqueue.KEY_REUSED)


class MemoryGates:
    """Which operations hold which gates, and how many of their messages were put in."""

    def __init__(self) -> None:
        self._held: dict[tuple[QueueRef, str | None], dict[str, _Held]] = {}
        self._calls: dict[tuple[int, str], _Remembered] = {}
        self._direct_until: dict[int, int] = {}
        self._voided: set[str] = set()

    def close(
        self, queue: QueueRef, gates: Sequence[Gated], *, room: float, now_ms: int
    ) -> tuple[list[int | None], int]:
        """How many messages may come through each gate (None: void), and how many may not."""
        answers: list[int | None] = []
        refused = 0
        for gate in gates:
            held = self._held.setdefault((queue, gate.key), {})
            if gate.operation in self._voided:
                answers.append(None)
                continue
            if gate.operation in held:
                answers.append(held[gate.operation].total)
                continue
            granted = int(max(0, min(gate.messages, room)))
            refused += gate.messages - granted
            if granted or not gate.messages:
                held[gate.operation] = _Held(total=granted, closed_at_ms=now_ms)
                room -= granted
            answers.append(granted)
        return answers, refused

    def void(self, queue: QueueRef, gate: Gated) -> bool:
        held = self._held.get((queue, gate.key), {})
        if gate.operation in held and held[gate.operation].put == 0:
            del held[gate.operation]
            self._voided.add(gate.operation)
        return gate.operation in self._voided

    def open(self, queue: QueueRef, gates: Sequence[Gated]) -> None:
        for gate in gates:
            self._held.get((queue, gate.key), {}).pop(gate.operation, None)

    def closed(self, queue: QueueRef, key: str | None) -> bool:
        return bool(self._held.get((queue, key)))

    def reserved(self, queue: QueueRef) -> int:
        """How many messages the operations behind closed gates will bring."""
        mine = (held for (ref, _), gate in self._held.items() if ref == queue for held in gate.values())
        return sum(max(0, held.total - held.put) for held in mine)

    def stale(self, *, before_ms: int) -> list[tuple[QueueRef, Gated]]:
        found = [
            (held.closed_at_ms, queue, Gated(key=key, operation=operation))
            for (queue, key), gate in self._held.items()
            for operation, held in gate.items()
            if held.closed_at_ms <= before_ms
        ]
        return [(queue, gate) for _, queue, gate in sorted(found, key=lambda one: one[0])]

    def allow(self, shard: int, *, until_ms: int) -> None:
        self._direct_until[shard] = max(until_ms, self._direct_until.get(shard, 0))

    def forbid(self, shard: int) -> None:
        self._direct_until[shard] = 0

    def lapsed(self, shard: int, *, now_ms: int) -> bool:
        return self._direct_until.get(shard, now_ms) < now_ms

    def repeated(self, shard: int, call: NamedCall, messages: Sequence[NewMessage]) -> list[Enqueued] | None:
        """The answers to a call that its slot remembers; None if it is new."""
        known = self._calls.get((shard, call.slot))
        if known is None:
            return None
        if known.id != call.id:
            if _is_earlier(call, known.id):
                raise checks.call_stale()
            return None
        if _is_other(call, known) or (known.answers and len(known.answers) != len(messages)):
            raise checks.call_reused()
        answers = known.answers or [CallAnswer(outcome=Enqueue.GATED)] * len(messages)
        return [
            Enqueued(outcome=answer.outcome, message_id=answer.original_id or message.id)
            for message, answer in zip(messages, answers, strict=True)
        ]

    def remember(self, shard: int, call: NamedCall, answers: Sequence[Enqueued], *, now_ms: int) -> None:
        noted = [
            CallAnswer(
                outcome=one.outcome, original_id=one.message_id if one.outcome in _NAME_ANOTHER else None
            )
            for one in answers
        ]
        self._calls[shard, call.slot] = _Remembered(
            id=call.id, digest=call.digest, answers=noted, at_ms=now_ms
        )

    def settle(self, shard: int, call: NamedCall, *, now_ms: int) -> list[CallAnswer]:
        known = self._calls.get((shard, call.slot))
        if known is not None and known.id == call.id:
            if _is_other(call, known):
                raise checks.call_reused()
            return known.answers
        if known is not None and _is_earlier(call, known.id):
            raise checks.call_stale()
        self.remember(shard, call, [], now_ms=now_ms)
        return []

    def idle_calls(self, shard: int, *, before_ms: int) -> list[str]:
        return sorted(
            slot for (at, slot), known in self._calls.items() if at == shard and known.at_ms <= before_ms
        )

    def forget_calls(self, shard: int, slots: Sequence[str], *, before_ms: int) -> int:
        idle = set(self.idle_calls(shard, before_ms=before_ms)) & set(slots)
        for slot in idle:
            del self._calls[shard, slot]
        return len(idle)

    def put_for(
        self,
        queue: QueueRef,
        messages: Sequence[NewMessage],
        operations: Sequence[str],
        *,
        put: Put,
        original_id: Callable[[NewMessage], MessageId],
    ) -> list[Enqueued]:
        """Put in the messages that each operation has not put in yet, until there is no room."""
        answers: list[Enqueued] = []
        seen: dict[str, int] = {}
        stopped: set[str] = set()
        for message, operation in zip(messages, operations, strict=True):
            held = self._held.get((queue, message.key), {})
            seen[operation] = seen.get(operation, 0) + 1
            if operation not in held:
                answers.append(Enqueued(outcome=Enqueue.GATED, message_id=message.id))
            elif seen[operation] <= held[operation].put:
                answers.append(Enqueued(outcome=Enqueue.DUPLICATE, message_id=original_id(message)))
            elif operation in stopped:
                answers.append(Enqueued(outcome=Enqueue.FULL, message_id=message.id))
            else:
                answers.append(answer := put(message))
                if answer.outcome is Enqueue.FULL:
                    stopped.add(operation)
                else:
                    held[operation].put = seen[operation]
        return answers


def _is_other(call: NamedCall, known: _Remembered) -> bool:
    """Whether a call is known with other messages, as far as both tell a digest."""
    return bool(call.digest and known.digest) and call.digest != known.digest


def _is_earlier(call: NamedCall, remembered: str) -> bool:
    """Whether a call was made before the one that its slot remembers, as far as both have numbers."""
    return call.id.isdecimal() and remembered.isdecimal() and int(call.id) < int(remembered)
