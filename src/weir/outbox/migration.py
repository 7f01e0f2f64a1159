"""Makes the table of the outbox in a user's database. Safe to run twice, and while messages are written."""

from __future__ import annotations

import asyncio
from importlib.resources import files

import psycopg

from weir.errors import Unavailable

ANSWER_S = 30.0
"""How long it may take. Creating an index waits for transactions that write to the table."""
_LOCK = "SELECT pg_advisory_xact_lock(1466526066, 256)"
"""The lock of migrations. Pushes lock the stripes 0 to 255 of this class, so neither waits for the other."""


async def migrate(database: str) -> None:
    """Make the table, its indexes and its trigger in the schema `weir_outbox`.

    ```python
    asyncio.run(outbox.migrate("postgresql://…"))
    ```
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            async with await psycopg.AsyncConnection.connect(database, connect_timeout=5) as connection:
                await connection.execute(_LOCK)
                for file in _migrations():
                    await connection.execute(file)
    except (psycopg.Error, TimeoutError, OSError) as error:
        raise Unavailable(f"the outbox cannot be made: {error or 'no answer in time'}") from error


def _migrations() -> list[bytes]:
    folder = files("weir.outbox.migrations")
    names = sorted(one.name for one in folder.iterdir() if one.name.endswith(".sql"))
    return [folder.joinpath(name).read_bytes() for name in names]
