"""Finishes the calls of clients in direct mode whose outcome they do not know.

A client that got no answer from Redis sends the push again, through the API, with the name of its call. The
broker is asked what the call did, and a call that never came is made void. Messages that the call did not put
in are then pushed like any others. While the broker is out of reach, the push is queued with the name of the
call, and its operation asks later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from weir.broker.broker import Broker
from weir.errors import WeirError
from weir.exchange.attempt import Answers, Held, ask_call, done_answers
from weir.exchange.intake import Intake
from weir.exchange.seam import PushAnswer, Pusher, PushItem, Refused
from weir.model.ids import NamedCall
from weir.model.names import QueueRef
from weir.operations.gates import BROKER_ANSWER_S, is_unknown
from weir.operations.model import Reason


class ResumingPusher:
    """A `Pusher` for items that may belong to a call of unknown outcome; `inner` is for all others."""

    def __init__(
        self, inner: Pusher, *, broker: Broker, intake: Intake | None, timeout_s: float = BROKER_ANSWER_S
    ) -> None:
        self._inner = inner
        self._broker = broker
        self._intake = intake
        self._timeout_s = timeout_s

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        calls: dict[tuple[QueueRef, NamedCall], list[int]] = defaultdict(list)
        for at, item in enumerate(items):
            if item.resumes is not None:
                calls[item.queue, item.resumes.call].append(at)
        if not calls:
            return await self._inner.push(items)
        answers: Answers = {}
        for (queue, call), places in calls.items():
            answers |= await self._resume(queue, call, [(at, items[at]) for at in places])
        left = [at for at in range(len(items)) if at not in answers]
        if left:
            pushed = await self._inner.push([replace(items[at], resumes=None) for at in left])
            answers |= dict(zip(left, pushed, strict=True))
        return [answers[at] for at in range(len(items))]

    async def _resume(self, queue: QueueRef, call: NamedCall, items: list[tuple[int, PushItem]]) -> Answers:
        """Answers for the messages that need nothing more."""
        told = await ask_call(self._broker, queue, call, timeout_s=self._timeout_s)
        if isinstance(told, WeirError) and not is_unknown(told):
            return {at: Refused(error=told) for at, _ in items}
        if isinstance(told, WeirError):
            return await self._keep(told, call, items)
        return done_answers(told, ((at, item, _place_in_call(item)) for at, item in items))

    async def _keep(self, error: WeirError, call: NamedCall, items: list[tuple[int, PushItem]]) -> Answers:
        """Nobody can tell what the call did: queue its messages with its name."""
        held: list[PushAnswer] = [
            Held(error=error, reason=Reason.BROKER_UNAVAILABLE, call=call, place=_place_in_call(item))
            for _, item in items
        ]
        if self._intake is not None:
            held = await self._intake.keep([item for _, item in items], held)
        return dict(zip((at for at, _ in items), held, strict=True))


def _place_in_call(item: PushItem) -> int:
    return item.resumes.place if item.resumes else 0
