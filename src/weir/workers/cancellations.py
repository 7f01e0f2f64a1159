"""Finds the held messages of a worker that were cancelled, so that their handlers stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from weir.broker.broker import Broker
from weir.errors import Unavailable
from weir.model.handling import CANCELLATION_LOOK_S
from weir.model.limits import MAX_BATCH
from weir.workers.held import HeldMessage
from weir.workers.renew import Renewer


class Cancellations:
    """Asks which leases of a worker were revoked, and calls `on_cancelled` once for each such message."""

    def __init__(
        self,
        broker: Broker,
        leases: Renewer,
        *,
        on_cancelled: Callable[[HeldMessage], None],
        look_every_s: float = CANCELLATION_LOOK_S,
    ) -> None:
        self._broker = broker
        self._leases = leases
        self._on_cancelled = on_cancelled
        self._look_every_s = look_every_s

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self._look_every_s)
            await self.look()

    async def look(self) -> None:
        """Ask once. If the broker is away nothing happens; a later renewal finds the revoked leases."""
        since = time.monotonic() - self._look_every_s
        asked = [held for held in self._leases if held.claimed_at <= since]
        for start in range(0, len(asked), MAX_BATCH):
            batch = asked[start : start + MAX_BATCH]
            try:
                answers = await self._broker.revoked([held.delivery.lease for held in batch])
            except Unavailable:
                return
            for held, is_revoked in zip(batch, answers, strict=True):
                # Its handler may have ended during the call.
                if is_revoked and held in self._leases:
                    self._on_cancelled(held)
