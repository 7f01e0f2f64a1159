"""What is in an outbox: how many messages wait in it, and which were set aside; and sends these again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import dict_row

from weir.errors import NotFound, Unavailable
from weir.model.ids import check_id
from weir.outbox.transactional_push import SQL

ANSWER_S = 30.0
"""How long one statement may take. Counting reads the whole table."""
SHOWN_BYTES = 4_096
"""So much of a payload is shown."""


async def outbox_figures(database: str) -> dict[str, Any]:
    """The figures of an outbox; Unavailable if it cannot be read."""
    rows, _ = await _ask(database, "figures")
    return rows[0]


async def list_failed(database: str, *, limit: int) -> list[dict[str, Any]]:
    """The messages that were set aside, the newest first, each with the reason."""
    rows, _ = await _ask(database, "list_failed", limit=limit)
    return [_readable(row) for row in rows]


async def show_message(database: str, message_id: str) -> dict[str, Any]:
    """One message of the outbox, with the beginning of its payload."""
    rows, _ = await _ask(database, "show", id=check_id(message_id, what="message"), shown=SHOWN_BYTES)
    if not rows:
        raise NotFound(f"there is no message `{message_id}` in this outbox; it may be in its queue")
    return _readable(rows[0])


async def retry_failed(database: str, message_ids: Sequence[str] | None) -> int:
    """Relay these messages again, or all that were set aside; returns how many were."""
    ids = None if message_ids is None else [check_id(one, what="message") for one in message_ids]
    _, count = await _ask(database, "retry", ids=ids)
    return count


async def _ask(database: str, query: str, **parameters: Any) -> tuple[list[dict[str, Any]], int]:
    """The rows of an answer, and how many rows a statement touched."""
    try:
        async with asyncio.timeout(ANSWER_S):
            async with await psycopg.AsyncConnection.connect(
                database, connect_timeout=5, row_factory=dict_row
            ) as connection:
                cursor = await connection.execute(SQL[query].text, parameters)
                return (await cursor.fetchall() if cursor.description else []), cursor.rowcount
    except psycopg.errors.UndefinedTable:
        raise Unavailable("there is no outbox here; make it with `weir outbox migrate`") from None
    except (psycopg.Error, TimeoutError, OSError) as error:
        raise Unavailable(f"the outbox cannot be read: {error or 'no answer in time'}") from error


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    """A row as commands print it: times in milliseconds, and a payload as text."""
    found = {**row, "id": str(row["id"])}
    for name in ("created_at", "failed_at"):
        if name in found:
            moment = found.pop(name)
            found[f"{name}_ms"] = None if moment is None else round(moment.timestamp() * 1_000)
    if "payload" in found:
        found["payload"] = bytes(found["payload"]).decode("utf-8", "replace")
    return found
