"""Renews the leases of all messages that a worker holds, each after a third of its time."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from weir.broker.broker import Broker
from weir.errors import Unavailable
from weir.model.handling import RENEWALS_PER_LEASE
from weir.model.limits import MAX_BATCH
from weir.model.message import Settlement
from weir.workers.held import HeldMessage

# How often the renewer looks for leases that are due.
LOOK_EVERY_S = 0.25


class Renewer:
    """Keeps leases alive, and calls `on_lost` once for a message whose lease is lost nevertheless.

    `on_lost` is told whether the lease lapsed, or was revoked because the message was cancelled.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        on_lost: Callable[[HeldMessage, Settlement], None],
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._broker = broker
        self._on_lost = on_lost
        self._look_every_s = look_every_s
        self._held: set[HeldMessage] = set()

    def __iter__(self) -> Iterator[HeldMessage]:
        return iter(self._held)

    def __contains__(self, held: HeldMessage) -> bool:
        return held in self._held

    def hold(self, batch: Iterable[HeldMessage]) -> None:
        """Renew these leases from now on."""
        self._held.update(batch)

    def release(self, held: HeldMessage) -> None:
        self._held.discard(held)

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            await self.renew()
            await asyncio.sleep(self._look_every_s)

    async def renew(self) -> None:
        """Extend the leases that are due."""
        now = time.monotonic()
        due: dict[int, list[HeldMessage]] = defaultdict(list)
        for held in self._held:
            lease_ms = held.spec.delivery.lease_ms
            if now - held.renewed_at >= lease_ms / 1_000 / RENEWALS_PER_LEASE:
                due[lease_ms].append(held)
        for lease_ms, group in due.items():
            for start in range(0, len(group), MAX_BATCH):
                await self._extend(group[start : start + MAX_BATCH], lease_ms)

    async def _extend(self, group: list[HeldMessage], lease_ms: int) -> None:
        now = time.monotonic()
        try:
            answers = await self._broker.extend([held.delivery.lease for held in group], lease_ms=lease_ms)
        except Unavailable:
            return
        for held, answer in zip(group, answers, strict=True):
            if answer is Settlement.DONE:
                held.renewed_at = now
            elif held in self._held:
                self._held.discard(held)
                self._on_lost(held, answer)
