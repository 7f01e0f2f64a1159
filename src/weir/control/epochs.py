"""Checks that Redis belongs to this PostgreSQL: an empty or foreign Redis would look like empty queues."""

from __future__ import annotations

from typing import Protocol

from weir.control.database import Database
from weir.control.sql import load_queries
from weir.errors import BrokerUnavailable
from weir.model.clock import Clock, SystemClock
from weir.model.ids import new_id

SQL = load_queries("weir.control", "epochs.sql")


class HasEpoch(Protocol):
    """A broker that knows its epoch: a name that is lost together with its data."""

    async def epoch(self) -> str | None: ...

    async def begin_epoch(self, epoch: str) -> str:
        """Set the epoch unless there is one; returns the epoch that holds then."""

    async def hold_epoch(self, epoch: str) -> None:
        """Refuse every call from now on once the data of this epoch is lost."""


class Epochs:
    """Keeps the epoch in PostgreSQL and in Redis the same."""

    def __init__(self, database: Database, broker: HasEpoch, *, clock: Clock | None = None) -> None:
        self._database = database
        self._broker = broker
        self._clock = clock or SystemClock()

    async def check(self) -> str:
        """Return the epoch that PostgreSQL knows; raise unless Redis has it."""
        expected, found = await self._read_expected(), await self._broker.epoch()
        if found is None or found != expected:
            raise BrokerUnavailable(
                f"this Redis {'is empty' if found is None else 'belongs to another installation'}; "
                "bring the right one back, or accept the loss with `weir serve --new-epoch`"
            )
        return found

    async def agree(self, *, accept_loss: bool = False) -> None:
        """At start-up: begin the first epoch, or check that it is the right one, and hold on to it.

        With `accept_loss`, take over the epoch of any other Redis.
        """
        # Redis first: a crash in between leaves PostgreSQL without an epoch, and the next start takes Redis'.
        if await self._read_expected() is None:
            epoch = await self._broker.begin_epoch(new_id())
            await self._database.execute(SQL["begin_epoch"], epoch=epoch, now_ms=self._clock.now_ms())
        elif accept_loss:
            epoch = await self._broker.begin_epoch(new_id())
            await self._database.execute(SQL["replace_epoch"], epoch=epoch, now_ms=self._clock.now_ms())
        await self._broker.hold_epoch(await self.check())

    async def _read_expected(self) -> str | None:
        row = await self._database.fetch_one(SQL["read_epoch"])
        return None if row is None else str(row["epoch"])
