"""Gates, calls and allowances of the memory broker: what keeps direct and queued enqueues in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weir.broker.broker import Call, Gated
from weir.model.message import Enqueue, Enqueued, NewMessage
from weir.model.names import QueueRef

Put = Callable[[NewMessage], Enqueued]


class Gates:
    """Which operations hold which gates, and how many of their messages were put in."""

    def __init__(self) -> None:
        self._held: dict[tuple[QueueRef, str | None], dict[str, int]] = {}
        self._calls: dict[tuple[int, str], tuple[str, list[bool]]] = {}
        self._direct_until: dict[int, int] = {}
        self._voided: set[str] = set()

    def close(self, queue: QueueRef, gates: Sequence[Gated]) -> list[Gated]:
        void = [gate for gate in gates if gate.operation in self._voided]
        for gate in gates:
            if gate not in void:
                self._held.setdefault((queue, gate.key), {}).setdefault(gate.operation, 0)
        return void

    def void(self, queue: QueueRef, gate: Gated) -> bool:
        held = self._held.get((queue, gate.key), {})
        if held.get(gate.operation) == 0:
            del held[gate.operation]
            self._voided.add(gate.operation)
        return gate.operation in self._voided

    def open(self, queue: QueueRef, gates: Sequence[Gated]) -> list[Gated]:
        left: list[Gated] = []
        for gate in gates:
            self._held.get((queue, gate.key), {}).pop(gate.operation, None)
        for key in dict.fromkeys(gate.key for gate in gates):
            left += [Gated(key=key, operation=held) for held in self._held.get((queue, key), {})]
        return left

    def closed(self, queue: QueueRef, key: str | None) -> bool:
        return bool(self._held.get((queue, key)))

    def allow(self, shard: int, *, until_ms: int) -> None:
        self._direct_until[shard] = max(until_ms, self._direct_until.get(shard, 0))

    def lapsed(self, shard: int, *, now_ms: int) -> bool:
        return self._direct_until.get(shard, now_ms) < now_ms

    def repeated(self, shard: int, call: Call, messages: Sequence[NewMessage]) -> list[Enqueued] | None:
        """The answers to a call that its lane remembers; None if it is new."""
        remembered, put_in = self._calls.get((shard, call.lane), ("", []))
        if remembered != call.id:
            return None
        known = put_in or [False] * len(messages)
        return [
            Enqueued(outcome=Enqueue.DUPLICATE if was_in else Enqueue.GATED, message_id=message.id)
            for message, was_in in zip(messages, known, strict=True)
        ]

    def remember(self, shard: int, call: Call, answers: Sequence[Enqueued]) -> None:
        turned_away = (Enqueue.FULL, Enqueue.GATED)
        self._calls[shard, call.lane] = (call.id, [a.outcome not in turned_away for a in answers])

    def settle(self, shard: int, call: Call) -> list[bool]:
        remembered, put_in = self._calls.get((shard, call.lane), ("", []))
        if remembered == call.id:
            return put_in
        self.remember(shard, call, [])
        return []

    def put_for(
        self, queue: QueueRef, messages: Sequence[NewMessage], operations: Sequence[str], put: Put
    ) -> list[Enqueued]:
        """Put in what each operation has not put in yet, until there is no room for it."""
        answers: list[Enqueued] = []
        seen: dict[str, int] = {}
        stopped: set[str] = set()
        for message, operation in zip(messages, operations, strict=True):
            held = self._held.get((queue, message.key), {})
            seen[operation] = seen.get(operation, 0) + 1
            if operation not in held:
                answers.append(Enqueued(outcome=Enqueue.GATED, message_id=message.id))
            elif seen[operation] <= held[operation]:
                answers.append(Enqueued(outcome=Enqueue.DUPLICATE, message_id=message.id))
            elif operation in stopped:
                answers.append(Enqueued(outcome=Enqueue.FULL, message_id=message.id))
            else:
                answers.append(answer := put(message))
                if answer.outcome is Enqueue.FULL:
                    stopped.add(operation)
                else:
                    held[operation] = seen[operation]
        return answers
