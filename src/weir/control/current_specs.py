"""The applied specs as one process knows them: refreshed soon after any process applies one."""

from __future__ import annotations

import asyncio
import contextlib
import json

from weir.control.database import Database, Row
from weir.control.scopes import scope_of
from weir.control.spec_register import SQL
from weir.control.stored_queues import read_stored_queue
from weir.errors import ControlUnavailable
from weir.model.names import EnvironmentRef
from weir.spec.ir import AppSpec
from weir.spec.language import spec_of
from weir.spec.snapshot import EnvironmentNews, SpecSnapshot, with_news

# How soon a process follows a change of another one; each look costs one small query.
REFRESH_S = 0.5
# Environments of one query for news.
_PAGE = 200


class CurrentSpecs:
    """Keeps `snapshot` current by asking what is new; an unreachable store leaves it as it is.

    A transaction counts the revision of its environment and leaves its own number there. So what is new since
    a look is what was written by transactions that its snapshot did not see, however late they committed.
    """

    def __init__(self, database: Database, *, every_s: float = REFRESH_S) -> None:
        self._database = database
        self._every_s = every_s
        self._seen = 0
        self._revisions: dict[EnvironmentRef, int] = {}
        self._snapshot = SpecSnapshot()
        self._looking = asyncio.Lock()

    @property
    def snapshot(self) -> SpecSnapshot:
        return self._snapshot

    async def refresh(self) -> bool:
        """Read the environments that changed; returns whether one did."""
        async with self._looking:
            row = await self._database.fetch_one(SQL["changed_environments"], seen=self._seen)
            assert row is not None
            found = {
                EnvironmentRef(organization=one[0], project=one[1], environment=one[2]): int(one[3])
                for one in row["environments"]
            }
            changed = [ref for ref, revision in found.items() if self._revisions.get(ref) != revision]
            for at in range(0, len(changed), _PAGE):
                await self._read(changed[at : at + _PAGE], found)
            self._seen = row["seen"]
            return bool(changed)

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            with contextlib.suppress(ControlUnavailable):
                await self.refresh()
            await asyncio.sleep(self._every_s)

    async def _read(self, environments: list[EnvironmentRef], found: dict[EnvironmentRef, int]) -> None:
        rows = await self._database.fetch(
            SQL["environment_news"],
            organizations=[one.organization for one in environments],
            projects=[one.project for one in environments],
            environments=[one.environment for one in environments],
            known=[self._revisions.get(one, 0) for one in environments],
        )
        # In a thread: an environment may have thousands of queues.
        self._snapshot = await asyncio.to_thread(_follow, self._snapshot, rows)
        self._revisions |= {one: found[one] for one in environments}


def _follow(snapshot: SpecSnapshot, rows: list[Row]) -> SpecSnapshot:
    return with_news(snapshot, [_news(row) for row in rows])


def _news(row: Row) -> EnvironmentNews:
    app = AppSpec(name="") if row["spec"] is None else spec_of(json.loads(row["spec"]))
    return EnvironmentNews(
        environment=scope_of(row),
        app=app,
        hooks=frozenset(row["hooks"]),
        names=frozenset(row["names"]),
        queues={name: read_stored_queue(stored) for name, stored in json.loads(row["queues"]).items()},
    )
