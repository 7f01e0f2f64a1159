"""Settles messages: acks and nacks are sent in batches, and tried again while Redis is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from weir.broker.broker import Broker
from weir.errors import Unavailable, WeirError
from weir.model.limits import MAX_BATCH
from weir.model.message import Delivery, Failure, Settlement
from weir.workers.outcome import Ending, HandlerOutcome

log = structlog.get_logger("weir.workers")
RETRY_S = 0.2
OnSettled = Callable[[Delivery, HandlerOutcome, Settlement], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    delivery: Delivery
    outcome: HandlerOutcome
    give_up_at: float


class SettleBatches:
    """Sends one batch at a time. Outcomes that arrive meanwhile share the next batch."""

    def __init__(self, broker: Broker, *, on_settled: OnSettled, patience_s: float = 60.0) -> None:
        self._broker = broker
        self._on_settled = on_settled
        self._patience_s = patience_s
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None

    def settle(self, delivery: Delivery, outcome: HandlerOutcome) -> None:
        """Take an outcome. It is settled soon, and then `on_settled` is called."""
        give_up_at = asyncio.get_running_loop().time() + self._patience_s
        self._waiting.append(_Waiting(delivery=delivery, outcome=outcome, give_up_at=give_up_at))
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
                await asyncio.gather(
                    self._send([one for one in batch if one.outcome.ending is Ending.DONE], self._ack),
                    self._send([one for one in batch if one.outcome.ending is Ending.FAILED], self._nack),
                    self._send([one for one in batch if one.outcome.ending is Ending.REJECTED], self._bury),
                )
        finally:
            self._task = None

    async def _send(
        self,
        batch: list[_Waiting],
        call: Callable[[Sequence[_Waiting]], Awaitable[list[Settlement]]],
    ) -> None:
        if not batch:
            return
        try:
            settlements = await call(batch)
        except Unavailable:
            now = asyncio.get_running_loop().time()
            self._waiting += [one for one in batch if one.give_up_at > now]
            await asyncio.sleep(RETRY_S)
            return
        except WeirError as error:
            # The leases will lapse and the messages be delivered again, so nothing is lost.
            log.error("settling failed", count=len(batch), code=error.code, error=str(error))
            return
        for one, settlement in zip(batch, settlements, strict=True):
            self._on_settled(one.delivery, one.outcome, settlement)

    async def _ack(self, batch: Sequence[_Waiting]) -> list[Settlement]:
        return await self._broker.ack([one.delivery.lease for one in batch])

    async def _nack(self, batch: Sequence[_Waiting]) -> list[Settlement]:
        return await self._broker.nack([_failure(one) for one in batch])

    async def _bury(self, batch: Sequence[_Waiting]) -> list[Settlement]:
        return await self._broker.dead_letter([_failure(one) for one in batch])


def _failure(one: _Waiting) -> Failure:
    return Failure(lease=one.delivery.lease, error=one.outcome.error, delay_ms=one.outcome.delay_ms)
