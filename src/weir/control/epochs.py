"""Checks that Redis belongs to this PostgreSQL: an empty or foreign Redis would look like empty queues.

So would the right Redis with another number of shards, so both stores keep the number.
"""

from __future__ import annotations

from typing import Protocol

from weir.control.database import Database
from weir.control.sql import load_queries
from weir.errors import BrokerUnavailable
from weir.model.clock import Clock, SystemClock
from weir.model.ids import new_id
from weir.model.shards import require_shards

SQL = load_queries("weir.control", "epochs.sql")


class HasEpoch(Protocol):
    """A broker that knows its epoch: a name that is lost together with its data."""

    async def epoch(self) -> str | None: ...

    async def begin_epoch(self, epoch: str) -> str:
        """Set the epoch unless there is one; returns the epoch that holds then."""

    async def hold_epoch(self, epoch: str) -> None:
        """Refuse every call from now on once the data of this epoch is lost."""

    @property
    def shards(self) -> int: ...

    async def written_shards(self) -> int | None:
        """The number of shards that its data were begun with; None if nobody wrote it yet."""

    async def write_shards(self) -> None:
        """Write its number of shards unless there is one."""


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
        epoch = await self.check()
        await self._agree_on_shards()
        await self._broker.hold_epoch(epoch)

    async def _agree_on_shards(self) -> None:
        """Write the number of shards into both stores, or refuse to go on with another one."""
        mine = self._broker.shards
        # Nothing is written before Redis is read: a process with a wrong number must leave no trace.
        require_shards(await self._broker.written_shards(), configured=mine)
        # PostgreSQL decides between two first starts.
        row = await self._database.fetch_one(SQL["agree_on_shards"], shards=mine)
        require_shards(None if row is None else row["shards"], configured=mine)
        await self._broker.write_shards()

    async def _read_expected(self) -> str | None:
        row = await self._database.fetch_one(SQL["read_epoch"])
        return None if row is None else str(row["epoch"])
