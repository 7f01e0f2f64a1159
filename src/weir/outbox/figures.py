"""The figures of an outbox: how many messages wait in it, since when, and how many can never be pushed."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from psycopg.rows import dict_row

from weir.errors import Unavailable
from weir.outbox.transactional_push import SQL

ANSWER_S = 30.0
"""How long counting may take. It reads the whole table."""


async def outbox_figures(database: str) -> dict[str, Any]:
    """The figures of an outbox; Unavailable if it cannot be read."""
    try:
        async with asyncio.timeout(ANSWER_S):
            async with await psycopg.AsyncConnection.connect(
                database, connect_timeout=5, row_factory=dict_row
            ) as connection:
                cursor = await connection.execute(SQL["figures"].text)
                return dict(await cursor.fetchone() or {})
    except psycopg.errors.UndefinedTable:
        raise Unavailable("there is no outbox here; make it with `weir outbox migrate`") from None
    except (psycopg.Error, TimeoutError, OSError) as error:
        raise Unavailable(f"the outbox cannot be read: {error or 'no answer in time'}") from error
