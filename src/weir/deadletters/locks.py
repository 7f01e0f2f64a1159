"""The advisory locks of this room in PostgreSQL. Each ends with the transaction that holds it."""

from __future__ import annotations

from enum import IntEnum

from weir.control.database import Connection, fetch_one
from weir.deadletters.queries import DEAD_LETTERS


class DeadLetterLock(IntEnum):
    """Lock numbers. They must stay: processes of an older release use the same ones."""

    MOVER = 7764
    """Held by the mover of a shard. The shard's checkpoint names one batch, so a second mover would overwrite
    it before the first one dropped its messages, and a letter that was purged since could come back."""
    AUDIT = 7765
    """Held by the audit of the installation. A second one would only count the same letters again."""


async def try_lock(connection: Connection, lock: DeadLetterLock, part: int = 0) -> bool:
    """Take a lock until the transaction ends; False if another process has it, which then does the work."""
    row = await fetch_one(connection, DEAD_LETTERS["try_lock"], lock=int(lock), part=part)
    return row is not None and bool(row["locked"])
