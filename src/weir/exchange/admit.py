"""Every push of a producer comes in here. It is executed through the direct attempt, queued, or turned away,
and its answer is counted.

Queueing closes the gate of the partition in the broker first, then writes to PostgreSQL, then answers;
from then on every direct enqueue of that partition, in any process, is GATED and queues behind. If the broker
is out of reach, the gate stays open and the operation says so; the keeper's direct allowance makes that safe.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from weir.admission.admission import Admission
from weir.admission.decide import Decision
from weir.admission.kinds import OperationType
from weir.errors import Overloaded, WeirError
from weir.exchange.attempt import Held
from weir.exchange.seam import PushAnswer, Pushed, Pusher, PushItem, Queued, Refused, SettleAnswer
from weir.model.holders import HOLDER, Holder
from weir.model.ids import OperationId
from weir.model.message import Settlement
from weir.operations.estimate import UNKNOWN, Rate
from weir.operations.model import NewOperation, Reason, Ticket
from weir.operations.writer import OperationWriter, Written

if TYPE_CHECKING:
    from weir.exchange.intake import Intake
    from weir.exchange.lineage import ChainedMessages

REFUSALS_PER_S = 300
"""With more refusals per second than this, a process asks callers to stay away longer."""
AnswerKey = tuple[str, str]
"""Status and reason. Both come from closed lists, so that the series stay few."""
EXECUTED = "executed"
_PUSHED: AnswerKey = ("201", EXECUTED)
_DUPLICATE: AnswerKey = ("201", "duplicate")
_SETTLED: AnswerKey = ("200", EXECUTED)
_LAPSED: AnswerKey = ("409", "lease_lost")


class AnswerTally:
    """Answers to producers and consumers since this process began, by status and reason."""

    def __init__(self) -> None:
        self.pushes: Counter[AnswerKey] = Counter()
        self.settlements: Counter[AnswerKey] = Counter()

    def count_pushes(self, answers: Sequence[PushAnswer]) -> None:
        """Count one answer per message."""
        self.pushes.update(map(_push_key, answers))

    def count_settlements(self, answers: Sequence[SettleAnswer]) -> None:
        """Count one answer per lease."""
        self.settlements.update(map(_settle_key, answers))

    def count_refusal(self, error: WeirError, *, times: int = 1) -> None:
        """Count pushes that one error refused together."""
        self.pushes[_refusal(error)] += times


class AnsweringPusher:
    """The outermost `Pusher` of a process: it counts the answers to producers.

    Most pushes go straight to `inner`. Pushes that finish a call of a client in direct mode go through
    `resuming`. Accepted messages with headers are shown to `chained`, which records their parents.
    """

    def __init__(
        self,
        inner: Pusher,
        tally: AnswerTally,
        *,
        resuming: Pusher | None = None,
        chained: ChainedMessages | None = None,
    ) -> None:
        self._inner = inner
        self._tally = tally
        self._resuming = resuming or inner
        self._chained = chained

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        resumes = any(item.resumes is not None for item in items)
        try:
            answers = await (self._resuming if resumes else self._inner).push(items)
        except WeirError as error:
            self._tally.count_refusal(error, times=len(items))
            raise
        self._tally.count_pushes(answers)
        if self._chained is not None and any(item.message.headers for item in items):
            self._chained.record(items, answers)
        return answers


class AdmittingPusher:
    """A `Pusher` that executes through `attempt`, queues or turns away, as pressure says.

    Requests are counted in flight here, so a request that waits to share a broker call counts too. Messages
    that the attempt held are queued here, outside of the shared call and when the request is not in flight
    any more.
    """

    def __init__(self, attempt: Pusher, *, intake: Intake, overflow: Overflow, admission: Admission) -> None:
        self._attempt = attempt
        self._intake = intake
        self._overflow = overflow
        self._admission = admission

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        """Answer for each item in order; Overloaded if none may enter."""
        holder = HOLDER.get()
        decision = self._admission.decide(OperationType.PUSH, holder)
        if decision is Decision.EXECUTE:
            with self._admission.executing(holder, calls=_calls(items)):
                answers = await self._attempt.push(items)
            if any(isinstance(answer, Held) for answer in answers):
                return await self._intake.keep(items, answers)
            return answers
        if decision is Decision.QUEUE:
            return await self._intake.queue(items)
        raise self._overflow.refuse()


class Overflow:
    """Queues operations and says where they stand."""

    def __init__(
        self,
        *,
        writer: OperationWriter,
        admission: Admission,
        tally: AnswerTally,
        rate: Callable[[], Rate],
    ) -> None:
        self._writer = writer
        self._admission = admission
        self._tally = tally
        self._rate = rate
        self._refusals = RecentCount()

    def admit(self, kind: OperationType, holder: Holder) -> None:
        """Turn an operation away before anything is read or parsed for it, if it would be rejected later."""
        if kind is OperationType.PUSH:
            self._require_room()
        if self._admission.peek(kind, holder) is Decision.REJECT:
            error = self.refuse()
            if kind is OperationType.PUSH:
                self._tally.count_refusal(error)
            raise error

    def _require_room(self) -> None:
        """Refuse messages while the disk of Redis has no room: PostgreSQL may be on the same one."""
        if (refusal := self._admission.no_room()) is not None:
            raise refusal

    def refuse(self, *, times: int = 1) -> Overloaded:
        """Count refusals, and return the error. It says to come back once a tenth of the queue has drained,
        later if many others are refused."""
        depth = self._admission.depth
        drain_ms = self._rate().wait_ms(depth // 10) or 1_000
        wait_ms = max(drain_ms, self._refusals.count(times) / REFUSALS_PER_S * 1000)
        spread = 1 + random.random() / 2
        return Overloaded(
            f"this process is busy and {depth} operations are queued; try again later",
            retry_after_s=max(1.0, min(30.0, wait_ms / 1000)) * spread,
            quota=self._admission.policy.of(OperationType.PUSH).depth,
            reason=self._admission.rejection(OperationType.PUSH).value,
            **{"violated-policies": ["operations"]},
        )

    async def add(
        self, operations: list[NewOperation], *, reason: Reason, must: bool = False
    ) -> list[Ticket | WeirError]:
        """Queue pushes of one queue, in order with everything else of their partitions; answer for each.

        A ticket says how many messages the queue has room for. With `must` all messages are queued, because
        they may have taken effect already.
        """
        self._require_room()
        for_load = reason is not Reason.BROKER_UNAVAILABLE
        admission, holder = self._admission, HOLDER.get()
        if not must and not admission.may_queue(
            OperationType.PUSH, len(operations), holder, for_load=for_load
        ):
            raise self.refuse()
        with admission.entering(sum(operation.messages for operation in operations), holder):
            written = await self._writer.add(operations)
        if for_load and not must:
            admission.return_unqueued(len(written.refused), holder)
        if not written.gated:
            reason = Reason.BROKER_UNAVAILABLE
        tickets = self._tickets(written, reason=reason)
        return [written.refused.get(one.id) or tickets[one.id] for one in operations]

    async def add_alone(self, operation: NewOperation) -> Ticket:
        """Queue an operation that needs neither order nor a gate."""
        written = await self._writer.add([operation])
        if written.refused:
            raise written.refused[operation.id]
        return self._tickets(written, reason=Reason.BROKER_UNAVAILABLE)[operation.id]

    def _tickets(self, written: Written, *, reason: Reason) -> dict[OperationId, Ticket]:
        rate = UNKNOWN if reason is Reason.BROKER_UNAVAILABLE else self._rate()
        first = max(1, written.depth - len(written.operations) + 1)
        return {
            operation.id: Ticket(
                operation_id=operation.id,
                position=position,
                estimated_wait_ms=rate.wait_ms(position),
                reason=reason,
                messages=operation.messages,
            )
            for position, operation in enumerate(written.operations, start=first)
        }


class RecentCount:
    """How many times something happened in about the last second."""

    def __init__(self) -> None:
        self._value = 0.0
        self._at = time.monotonic()

    def count(self, times: int) -> float:
        """Count some more; return the sum, in which older counts fade."""
        now = time.monotonic()
        self._value = self._value * math.exp(self._at - now) + times
        self._at = now
        return self._value


def _calls(items: Sequence[PushItem]) -> int:
    """How many broker calls these items take: one per queue."""
    # By identity: references to queues are cached, and hashing them would cost a batch a few per cent.
    return 1 if len(items) == 1 else len({id(item.queue) for item in items})


def _push_key(answer: PushAnswer) -> AnswerKey:
    if isinstance(answer, Pushed):
        return _DUPLICATE if answer.duplicate else _PUSHED
    return _later_or_never(answer)


def _settle_key(answer: SettleAnswer) -> AnswerKey:
    if isinstance(answer, Queued | Refused):
        return _later_or_never(answer)
    return _LAPSED if answer.outcome is Settlement.LAPSED else _SETTLED


def _later_or_never(answer: Queued | Refused) -> AnswerKey:
    return ("202", answer.reason) if isinstance(answer, Queued) else _refusal(answer.error)


def _refusal(error: WeirError) -> AnswerKey:
    """A refusal for load has a reason of its own; any other is known by its code."""
    reason = error.extra.get("reason") if isinstance(error, Overloaded) else None
    return str(error.status), str(reason or error.code)
