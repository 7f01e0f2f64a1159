"""The current book of applied specs in a process: refreshed soon after anything is applied anywhere."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from weir.control.database import Database, Row
from weir.control.queues import QueueDefinition, QueueDefinitions
from weir.control.specs import SQL
from weir.errors import ControlUnavailable
from weir.model.names import EnvironmentRef
from weir.spec.book import SpecBook, book_of
from weir.spec.language import spec_of

REFRESH_S = 0.5


class SpecRegistry:
    """Keeps `book` current by asking for a version number; an unreachable store leaves it as it is."""

    def __init__(self, database: Database, *, every_s: float = REFRESH_S) -> None:
        self._database = database
        self._every_s = every_s
        self._version: dict[str, Any] | None = None
        self._book = SpecBook()
        self._changed = asyncio.Event()

    @property
    def book(self) -> SpecBook:
        return self._book

    async def refresh(self) -> bool:
        """Load everything again if something changed; whether it did."""
        version = await self._database.fetch_one(SQL["specs_version"])
        if version == self._version:
            return False
        rows = await self._database.fetch(SQL["all_current_specs"])
        owners = {row["name"]: _environment(row) for row in await self._database.fetch(SQL["hook_names"])}
        definitions = await QueueDefinitions(self._database).everything()
        # Away from the event loop: everybody's specs are read, and one with 5,000 queues takes a second.
        self._book = await asyncio.to_thread(_book, rows, owners, definitions)
        self._version = version
        self._changed.set()
        self._changed = asyncio.Event()
        return True

    async def changed(self) -> None:
        """Wait until the book is replaced."""
        await self._changed.wait()

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            with contextlib.suppress(ControlUnavailable):
                await self.refresh()
            await asyncio.sleep(self._every_s)


def _book(rows: list[Row], owners: dict[str, EnvironmentRef], definitions: list[QueueDefinition]) -> SpecBook:
    apps = {_environment(row): spec_of(row["spec"]) for row in rows}
    return book_of(apps, owners=owners, queues=((one.queue, one.spec) for one in definitions))


def _environment(row: Row) -> EnvironmentRef:
    return EnvironmentRef(
        organization=row["organization"], project=row["project"], environment=row["environment"]
    )
