"""The gates of operations in the broker, and which shards of it this process can reach.

A gate is closed before its operation is written and opened after it ended. If the broker is out of reach, the
gate stays open.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

from weir.broker.broker import Broker, Gated
from weir.broker.layout import KEPT_MS
from weir.errors import BrokerUnavailable, NotFound, WeirError
from weir.model.asyncio_tasks import all_of
from weir.model.durations import SECOND_MS
from weir.model.ids import OperationId
from weir.model.names import QueueRef
from weir.model.shards import shard_finder
from weir.operations.model import NewOperation

BROKER_ANSWER_S = 0.75
"""After this long without an answer a shard counts as out of reach, and the request is queued."""
Known = Callable[[QueueRef], Awaitable[bool]]
"""Whether a queue is defined, asked when the broker cannot tell."""


async def _trust(_: QueueRef) -> bool:
    return True


Closed = dict[OperationId, int | WeirError | None]
"""How many messages of each operation may be queued, or why it cannot be queued at all. None: its gate could
not be closed, because the broker is out of reach."""


class Reach:
    """Which shards can be reached. A failed call loses one, until the keeper has reached it again."""

    def __init__(self, shards: int) -> None:
        self.shard = shard_finder(shards)
        self.lost: set[int] = set()
        self._leases_kept_s: dict[int, float] = {}

    def lose(self, shard: int) -> None:
        self.lost.add(shard)

    def regain(self, shard: int) -> None:
        self.lost.discard(shard)

    def keep_leases(self, shard: int, *, since_s: float) -> None:
        """The keeper let leases lapse only if no queued acknowledgment named them then."""
        self._leases_kept_s[shard] = since_s + KEPT_MS / SECOND_MS

    def leases_kept_ms(self, shard: int) -> int:
        """For how much longer at least the broker lets no lease lapse, should it stay out of reach."""
        return max(0, int((self._leases_kept_s.get(shard, 0.0) - time.monotonic()) * SECOND_MS))


def is_unknown(error: WeirError) -> bool:
    """Whether the outcome of a failed broker call is unknown, because the broker did not answer it.

    Only this makes a shard count as out of reach. A call that the broker refused did nothing.
    """
    return isinstance(error, BrokerUnavailable) and not error.extra.get("refused")


def no_answer() -> BrokerUnavailable:
    """The error for a call that the broker did not answer within `BROKER_ANSWER_S`."""
    return BrokerUnavailable("the broker did not answer in time; try again", retry_after_s=1)


class Gates:
    """The gates of operations that are being queued; a broker out of reach leaves them open."""

    def __init__(
        self,
        *,
        broker: Broker,
        reach: Reach,
        known: Known | None = None,
        timeout_s: float = BROKER_ANSWER_S,
    ) -> None:
        self._broker = broker
        self._reach = reach
        self._known = known or _trust
        self._timeout_s = timeout_s

    async def close(self, operations: Sequence[NewOperation], *, however_full: bool = False) -> Closed:
        """Close the gates of operations, as far as their queues have room for them."""
        closed: Closed = {}
        places = _by_place(operations).items()
        await all_of(
            [self._close(queue, must or however_full, group, closed) for (queue, must), group in places]
        )
        return closed

    async def open(self, operations: Sequence[NewOperation]) -> None:
        """Open the gates of operations that were not queued after all."""
        for (queue, _), group in _by_place(operations).items():
            try:
                await self._broker.open_gates(queue, _gated(group))
            except BrokerUnavailable as error:
                self._note(group[0].shard, error)

    async def void(self, operations: Sequence[NewOperation]) -> dict[OperationId, bool | WeirError]:
        """Make operations void. True: the operation never runs. False: it runs. An error: nobody knows."""
        places = _by_place(operations)
        outcomes = await all_of([self._void(queue, group) for (queue, _), group in places.items()])
        return {key: value for outcome in outcomes for key, value in outcome.items()}

    async def _void(self, queue: QueueRef, group: list[NewOperation]) -> dict[OperationId, bool | WeirError]:
        try:
            async with asyncio.timeout(self._timeout_s):
                void = await self._broker.void_gates(queue, _gated(group))
        except (WeirError, TimeoutError) as error:
            reason = error if isinstance(error, WeirError) else no_answer()
            self._note(group[0].shard, reason)
            return {operation.id: reason for operation in group}
        return {operation.id: one for operation, one in zip(group, void, strict=True)}

    async def _close(self, queue: QueueRef, must: bool, group: list[NewOperation], closed: Closed) -> None:
        try:
            granted = await self._ask_room(queue, group, must=must)
            if granted is None and not await self._known(queue):
                raise NotFound(f"there is no queue `{queue.queue}`; define it first")
        except WeirError as error:
            closed.update((operation.id, error) for operation in group)
            return
        for at, operation in enumerate(group):
            closed[operation.id] = None if granted is None else granted[at] or 0

    async def _ask_room(
        self, queue: QueueRef, group: list[NewOperation], *, must: bool
    ) -> list[int | None] | None:
        """How many messages of each operation the broker takes; None if it is out of reach."""
        shard = group[0].shard
        if shard in self._reach.lost:
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._broker.close_gates(queue, _gated(group), within_room=not must)
        except TimeoutError:
            self._reach.lose(shard)
            return None
        except BrokerUnavailable as error:
            # The broker refused, so the caller gets the error, unless the push may have taken effect before.
            if not is_unknown(error) and not must:
                raise
            self._note(shard, error)
            return None

    def _note(self, shard: int, error: WeirError) -> None:
        """Lose a shard that did not answer. One that refused a call has answered."""
        if is_unknown(error):
            self._reach.lose(shard)


def _by_place(operations: Sequence[NewOperation]) -> dict[tuple[QueueRef, bool], list[NewOperation]]:
    """Operations that can be gated in one call: of one queue, and all bound by its room or none."""
    places: dict[tuple[QueueRef, bool], list[NewOperation]] = defaultdict(list)
    for operation in operations:
        places[operation.queue, operation.must].append(operation)
    return places


def _gated(group: list[NewOperation]) -> list[Gated]:
    return [
        Gated(key=operation.key, operation=operation.id, messages=operation.messages) for operation in group
    ]
