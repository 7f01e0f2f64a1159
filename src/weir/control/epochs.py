"""Does this Redis belong to this PostgreSQL? An empty or foreign one must not pass for "all queues empty"."""

from __future__ import annotations

from typing import Protocol

from weir.control.database import Database
from weir.control.sql import load_queries
from weir.errors import BrokerUnavailable
from weir.model.clock import Clock, SystemClock
from weir.model.ids import new_id

SQL = load_queries("weir.control", "epochs.sql")


class Living(Protocol):
    """A broker whose server has lives: what it kept is gone when a new one begins."""

    async def epoch(self) -> str | None: ...

    async def begin_epoch(self, epoch: str) -> str:
        """Name the life that has no name yet; the name that holds."""


class Epochs:
    """The agreement between PostgreSQL and Redis about which life it is."""

    def __init__(self, database: Database, broker: Living, *, clock: Clock | None = None) -> None:
        self._database = database
        self._broker = broker
        self._clock = clock or SystemClock()

    async def check(self) -> None:
        """Raise unless Redis is the one that PostgreSQL knows."""
        expected, found = await self._expected(), await self._broker.epoch()
        if found != expected:
            raise BrokerUnavailable(
                f"this Redis {'is empty' if found is None else 'belongs to another installation'}; "
                "bring the right one back, or accept the loss with `weir serve --new-epoch`"
            )

    async def agree(self, *, accept_loss: bool = False) -> None:
        """At start-up: name the first life; with `accept_loss`, take whatever Redis there is."""
        if await self._expected() is None:
            epoch = await self._broker.begin_epoch(new_id())
            await self._database.execute(SQL["begin_epoch"], epoch=epoch, now_ms=self._clock.now_ms())
        elif accept_loss:
            epoch = await self._broker.begin_epoch(new_id())
            await self._database.execute(SQL["replace_epoch"], epoch=epoch, now_ms=self._clock.now_ms())
        await self.check()

    async def _expected(self) -> str | None:
        row = await self._database.fetch_one(SQL["read_epoch"])
        return None if row is None else str(row["epoch"])
