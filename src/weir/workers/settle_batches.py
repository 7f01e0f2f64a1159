"""Settles messages: acks and nacks are sent in batches, and tried again while Redis is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import structlog

from weir.broker.broker import Broker
from weir.errors import Unavailable, WeirError
from weir.model.limits import MAX_BATCH
from weir.model.message import Failure, LeaseRef, Settlement
from weir.workers.held import HeldMessage
from weir.workers.outcome import Ending, HandlerOutcome, refused

log = structlog.get_logger("weir.workers")
# The pause before a batch is sent again while Redis is away.
RETRY_S = 0.2
OnSettled = Callable[[HeldMessage, HandlerOutcome, Settlement], None]
_Item = tuple[HeldMessage, HandlerOutcome]
_Send = Callable[[Sequence[_Item]], Awaitable[list[Settlement]]]


class SettleBatches:
    """Sends one batch at a time. Outcomes that arrive while a batch is sent share the next batch.

    `on_settled` is called once per outcome. An outcome that could not be settled is reported as LAPSED: its
    lease will lapse, and its message will be delivered again.
    """

    def __init__(self, broker: Broker, *, on_settled: OnSettled, patience_s: float = 60.0) -> None:
        self._broker = broker
        self._on_settled = on_settled
        self._patience_s = patience_s
        self._waiting: list[_Item] = []
        self._taken = 0
        self._task: asyncio.Task[None] | None = None
        self._sends: dict[Ending, _Send] = {
            Ending.DONE: lambda batch: _ack(broker, batch),
            Ending.FAILED: lambda batch: broker.nack([_failure(*one) for one in batch]),
            Ending.REJECTED: lambda batch: broker.dead_letter([_failure(*one) for one in batch]),
        }

    def __len__(self) -> int:
        """How many outcomes were taken and are not settled yet."""
        return self._taken

    def settle(self, held: HeldMessage, outcome: HandlerOutcome) -> None:
        """Take an outcome. It is settled soon, and then `on_settled` is called."""
        held.give_up_at = time.monotonic() + self._patience_s
        self._waiting.append((held, outcome))
        self._taken += 1
        if self._task is None:
            self._task = asyncio.create_task(self._drain())

    async def wait_until_settled(self) -> None:
        """Wait until every outcome that was taken is settled."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def _drain(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                await self._send_all(batch)
        finally:
            self._task = None

    async def _send_all(self, batch: list[_Item]) -> None:
        """Send a batch, one call per ending."""
        groups: dict[Ending, list[_Item]] = {}
        for one in batch:
            groups.setdefault(one[1].ending, []).append(one)
        if len(groups) == 1:
            ((ending, group),) = groups.items()
            await self._send(group, self._sends[ending])
            return
        await asyncio.gather(*(self._send(group, self._sends[ending]) for ending, group in groups.items()))

    async def _send(self, batch: list[_Item], send: _Send) -> None:
        try:
            settlements = await send(batch)
        except Unavailable:
            await self._try_later(batch)
        except Exception as error:  # whatever an odd outcome raises, the others are settled
            await self._narrow_down(batch, send, error)
        else:
            named = await self._name_cancelled(batch, settlements)
            for (held, outcome), settlement in zip(batch, named, strict=True):
                self._tell(held, outcome, settlement)

    async def _name_cancelled(self, batch: list[_Item], settlements: list[Settlement]) -> list[Settlement]:
        """The settlements, with CANCELLED for leases that are gone because their messages were cancelled."""
        gone = [at for at, settlement in enumerate(settlements) if settlement is Settlement.LAPSED]
        if not gone:
            return settlements
        try:
            answers = await self._broker.revoked([batch[at][0].delivery.lease for at in gone])
        except WeirError:
            return settlements
        cancelled = {at for at, is_revoked in zip(gone, answers, strict=True) if is_revoked}
        return [Settlement.CANCELLED if at in cancelled else one for at, one in enumerate(settlements)]

    async def _try_later(self, batch: list[_Item]) -> None:
        now = time.monotonic()
        self._waiting += [one for one in batch if one[0].give_up_at > now]
        for held, outcome in batch:
            if held.give_up_at <= now:
                self._give_up(held, outcome, "Redis was away for too long")
        await asyncio.sleep(RETRY_S)

    async def _narrow_down(self, batch: list[_Item], send: _Send, error: Exception) -> None:
        """Send the halves of a refused batch, so that a bad outcome fails alone, with that reason."""
        if len(batch) == 1:
            ((held, outcome),) = batch
            if held.refused:
                self._give_up(held, outcome, str(error))
            else:
                held.refused = True
                self._waiting.append((held, refused(outcome, error)))
            return
        middle = len(batch) // 2
        await self._send(batch[:middle], send)
        await self._send(batch[middle:], send)

    def _give_up(self, held: HeldMessage, outcome: HandlerOutcome, error: str) -> None:
        log.error(
            "settling failed", queue=held.delivery.queue.queue, id=held.delivery.message_id, error=error
        )
        self._tell(held, outcome, Settlement.LAPSED)

    def _tell(self, held: HeldMessage, outcome: HandlerOutcome, settlement: Settlement) -> None:
        self._taken -= 1
        self._on_settled(held, outcome, settlement)


def _ack(broker: Broker, batch: Sequence[_Item]) -> Awaitable[list[Settlement]]:
    """Ack messages, with the results that are to be kept."""
    leases = [_lease(held) for held, _ in batch]
    kept = [outcome.kept for _, outcome in batch]
    return broker.ack(leases, results=kept) if any(kept) else broker.ack(leases)


def _failure(held: HeldMessage, outcome: HandlerOutcome) -> Failure:
    return Failure(
        lease=_lease(held), error=outcome.error, delay_ms=outcome.delay_ms, uncounted=outcome.uncounted
    )


def _lease(held: HeldMessage) -> LeaseRef:
    """The lease, with how long its handler ran if the handler began."""
    lease = held.delivery.lease
    if not held.started_at_ms:
        return lease
    return LeaseRef(
        queue=lease.queue,
        message_id=lease.message_id,
        token=lease.token,
        handler_ms=max(0, held.finished_at_ms - held.started_at_ms),
    )
