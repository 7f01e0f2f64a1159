"""Deletes old rows in small statements until none is left, so that a deletion keeps pace with any load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import structlog

from weir.control.database import Database
from weir.control.sql import NamedQuery
from weir.errors import WeirError
from weir.model.asyncio_tasks import cancel_and_wait

log = structlog.get_logger(__name__)

EVERY_S = 60.0
# Few enough for one statement to end long before its deadline.
BATCH = 10_000


async def delete_old(database: Database, query: NamedQuery, *, limit: int = BATCH, **parameters: Any) -> int:
    """Run a deletion of at most `limit` rows until it finds fewer; returns how many rows it deleted."""
    deleted, last = 0, limit
    while last >= limit:
        last = await database.execute(query, limit=limit, **parameters)
        deleted += last
    return deleted


@asynccontextmanager
async def cleaning(clean: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Call `clean` every minute while the block runs. The block does not wait for it."""
    task = asyncio.create_task(_clean_regularly(clean))
    try:
        yield
    finally:
        await cancel_and_wait([task])


async def _clean_regularly(clean: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await clean()
        except WeirError as error:
            log.warning("old rows are not deleted for now", error=str(error))
        await asyncio.sleep(EVERY_S)
