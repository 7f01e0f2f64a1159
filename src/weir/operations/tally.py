"""What producers and consumers were answered, and what became of queued operations, as a process counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from weir.errors import Overloaded, WeirError
from weir.model.exchange import (
    PushAnswer,
    Pushed,
    Pusher,
    PushItem,
    Queued,
    Refused,
    SettleAnswer,
    SettleItem,
    Settler,
)
from weir.model.message import Settlement
from weir.operations.model import OperationStatus

AnswerKey = tuple[str, str]
"""Status and reason. Both come from closed lists, so that the series stay few."""

EXECUTED = "executed"
_PUSHED: AnswerKey = ("201", EXECUTED)
_DUPLICATE: AnswerKey = ("201", "duplicate")
_SETTLED: AnswerKey = ("200", EXECUTED)
_LAPSED: AnswerKey = ("409", "lease_lost")


class OperationTally:
    """Counts since this process began; `exposition` shows them."""

    def __init__(self) -> None:
        self.pushes: Counter[AnswerKey] = Counter()
        self.settlements: Counter[AnswerKey] = Counter()
        self.finished: Counter[tuple[str, OperationStatus]] = Counter()
        """Operations that this process ended, by type and status."""

    def turned_away(self, error: WeirError, *, times: int = 1) -> None:
        """Pushes were refused before they were read."""
        self.pushes[_refusal(error)] += times

    def ended(self, operations: Iterable[tuple[str, OperationStatus]]) -> None:
        self.finished.update(operations)


class CountedPusher:
    """A `Pusher` whose answers are counted: one for each message."""

    def __init__(self, inner: Pusher, tally: OperationTally) -> None:
        self._inner = inner
        self._tally = tally

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        try:
            answers = await self._inner.push(items)
        except WeirError as error:
            self._tally.turned_away(error, times=len(items))
            raise
        self._tally.pushes.update(map(_push_key, answers))
        return answers


class CountedSettler:
    """A `Settler` whose answers are counted: one for each lease."""

    def __init__(self, inner: Settler, tally: OperationTally) -> None:
        self._inner = inner
        self._tally = tally

    async def settle(self, items: Sequence[SettleItem]) -> list[SettleAnswer]:
        answers = await self._inner.settle(items)
        self._tally.settlements.update(map(_settle_key, answers))
        return answers


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
