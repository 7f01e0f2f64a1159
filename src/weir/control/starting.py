"""Is PostgreSQL there, but not ready yet? Then it is worth waiting for."""

from __future__ import annotations

import psycopg
from psycopg import AsyncConnection

_CONNECT_S = 2
_WORDS = ("starting up", "not yet accepting connections", "in recovery mode")
"""libpq has no code for a refused connection, only what the server wrote."""


async def is_starting(url: str) -> bool:
    """Whether PostgreSQL refuses connections for now; one that is not there is for others to notice."""
    try:
        connection = await AsyncConnection.connect(url, connect_timeout=_CONNECT_S)
    except psycopg.OperationalError as error:
        return any(word in str(error) for word in _WORDS)
    await connection.close()
    return False
