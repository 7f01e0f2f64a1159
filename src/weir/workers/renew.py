"""Renews the leases of all messages that a worker holds, each after a third of its time."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from weir.broker.broker import Broker
from weir.errors import Unavailable
from weir.model.limits import MAX_BATCH
from weir.model.message import Delivery, LeaseRef, Settlement

# How often the renewer looks for leases that are due.
LOOK_EVERY_S = 0.25
# A lease outlives two renewals that fail.
RENEWALS_PER_LEASE = 3


@dataclass(slots=True)
class _Held:
    delivery: Delivery
    lease_ms: int
    renewed_at: float
    on_lost: Callable[[], None]


class Renewer:
    """Keeps leases alive, and calls `on_lost` for a lease that is lost nevertheless."""

    def __init__(self, broker: Broker, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self._broker = broker
        self._look_every_s = look_every_s
        self._held: dict[LeaseRef, _Held] = {}

    def hold(self, delivery: Delivery, *, lease_ms: int, on_lost: Callable[[], None]) -> None:
        """Renew this lease from now on; `on_lost` is called once if it is gone."""
        self._held[delivery.lease] = _Held(delivery, lease_ms, time.monotonic(), on_lost)

    def release(self, delivery: Delivery) -> None:
        self._held.pop(delivery.lease, None)

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            await self.renew()
            await asyncio.sleep(self._look_every_s)

    async def renew(self) -> None:
        """Extend the leases that are due."""
        now = time.monotonic()
        due: dict[int, list[_Held]] = defaultdict(list)
        for held in self._held.values():
            if now - held.renewed_at >= held.lease_ms / 1_000 / RENEWALS_PER_LEASE:
                due[held.lease_ms].append(held)
        for lease_ms, group in due.items():
            for start in range(0, len(group), MAX_BATCH):
                await self._extend(group[start : start + MAX_BATCH], lease_ms)

    async def _extend(self, group: list[_Held], lease_ms: int) -> None:
        now = time.monotonic()
        try:
            answers = await self._broker.extend([held.delivery.lease for held in group], lease_ms=lease_ms)
        except Unavailable:
            return
        for held, answer in zip(group, answers, strict=True):
            if answer is Settlement.DONE:
                held.renewed_at = now
            elif self._held.pop(held.delivery.lease, None) is not None:
                held.on_lost()
