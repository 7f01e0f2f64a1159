"""The applied specs as one process knows them: refreshed soon after any process applies one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from weir.control.database import Database, Row
from weir.control.queue_definitions import QueueDefinition, QueueDefinitions
from weir.control.scopes import scope_of
from weir.control.spec_register import SQL
from weir.errors import ControlUnavailable
from weir.model.names import EnvironmentRef
from weir.spec.language import spec_of
from weir.spec.snapshot import SpecSnapshot, snapshot_of

# How soon a process follows a spec that another one applied; each look costs one small query.
REFRESH_S = 0.5


class CurrentSpecs:
    """Keeps `snapshot` current by asking for a version number; an unreachable store leaves it as it is."""

    def __init__(self, database: Database, *, every_s: float = REFRESH_S) -> None:
        self._database = database
        self._every_s = every_s
        self._version: dict[str, Any] | None = None
        self._snapshot = SpecSnapshot()

    @property
    def snapshot(self) -> SpecSnapshot:
        return self._snapshot

    async def refresh(self) -> bool:
        """Load all specs again if one changed; returns whether one did."""
        version = await self._database.fetch_one(SQL["specs_version"])
        if version == self._version:
            return False
        rows = await self._database.fetch(SQL["all_current_specs"])
        owners = {row["name"]: scope_of(row) for row in await self._database.fetch(SQL["hook_names"])}
        definitions = await QueueDefinitions(self._database).everything()
        # In a thread: the specs of all tenants are read, and one with 5,000 queues takes a second.
        self._snapshot = await asyncio.to_thread(_snapshot, rows, owners, definitions)
        self._version = version
        return True

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            with contextlib.suppress(ControlUnavailable):
                await self.refresh()
            await asyncio.sleep(self._every_s)


def _snapshot(
    rows: list[Row], owners: dict[str, EnvironmentRef], definitions: list[QueueDefinition]
) -> SpecSnapshot:
    apps = {scope_of(row): spec_of(row["spec"]) for row in rows}
    return snapshot_of(apps, owners=owners, queues=((one.queue, one.spec) for one in definitions))
