"""The front of everything that producers push: the decision is taken here, before anything is shared."""

from __future__ import annotations

from collections.abc import Sequence

from weir.admission.admission import Admission
from weir.admission.decide import Decision
from weir.admission.kinds import OperationType
from weir.model.exchange import PushAnswer, Pusher, PushItem
from weir.model.holders import HOLDER
from weir.operations.attempt import Held
from weir.operations.intake import Intake


class AdmittingPusher:
    """A `Pusher` that executes through `attempt`, queues or turns away, as pressure says.

    Requests are counted in flight here, so those that wait for others to share a broker call with count.
    What the attempt held is queued here, outside of the shared call and after leaving the flight.
    """

    def __init__(self, attempt: Pusher, *, intake: Intake, admission: Admission) -> None:
        self._attempt = attempt
        self._intake = intake
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
        raise self._intake.overloaded()


def _calls(items: Sequence[PushItem]) -> int:
    """How many calls of the broker they take: one for each queue."""
    # By identity: references to queues are cached, and hashing them would cost a batch a few per cent.
    return 1 if len(items) == 1 else len({id(item.queue) for item in items})
