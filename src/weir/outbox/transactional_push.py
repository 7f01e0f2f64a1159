"""Writes a message into the outbox, inside whatever transaction the given connection is in.

The connection is recognized by the library that its class comes from, so none of the libraries is required.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from weir.client.values import Payload
from weir.control.sql import load_queries
from weir.errors import InvalidInput
from weir.model.durations import Duration
from weir.outbox.row import outbox_row

SQL = load_queries("weir.outbox", "outbox.sql")
_ADD = SQL["add"].text
_PARAMETER = re.compile(r"%\((\w+)\)s")
_TAKEN = (
    "a psycopg connection or cursor, a SQLAlchemy session or connection, a connection of Django "
    "or the name of one in `DATABASES`"
)


def push(
    connection: Any,
    queue: str,
    payload: Payload,
    *,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    delay: Duration | None = None,
    priority: int | None = None,
    idempotency_key: str | None = None,
) -> str:
    """Push a message if the transaction commits, and only then. Returns its id in the outbox.

    ```python
    with psycopg.connect(url) as connection:
        outbox.push(connection, "receipts", {"order": 42}, key="customer-7")
    ```

    - `connection`: a psycopg connection or cursor, a SQLAlchemy `Session` or `Connection`, a connection of
      Django or its name in `DATABASES`. Its transaction is yours to commit.
    - `payload`: bytes go as they are; any other value goes as JSON.
    - `key`: messages of one queue with the same key are relayed in the order in which their transactions
      committed.
    - `delay`: how long from now the message cannot be taken, in seconds or as a `timedelta`.
    - `headers`, `priority`, `idempotency_key`: as in `Weir.push`.

    Raises `InvalidInput` or `TooLarge` if no queue could take the message, before anything is written.
    """
    row = outbox_row(
        queue,
        payload,
        key=key,
        headers=headers,
        delay=delay,
        priority=priority,
        idempotency_key=idempotency_key,
    )
    match _library(connection):
        case "psycopg", False:
            connection.execute(_ADD, row)
        case "sqlalchemy", False:
            connection.execute(_sqlalchemy_text(_dialect(connection)), row)
        case "django", False:
            push_through_django(connection, row)
        case _, True:
            raise InvalidInput("this connection is asynchronous; write `await outbox.apush(…)`")
        case _:
            raise _not_a_connection(connection)
    return str(row["id"])


async def apush(
    connection: Any,
    queue: str,
    payload: Payload,
    *,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    delay: Duration | None = None,
    priority: int | None = None,
    idempotency_key: str | None = None,
) -> str:
    """`push` for a psycopg `AsyncConnection`, or a SQLAlchemy `AsyncSession` or `AsyncConnection`.

    ```python
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await outbox.apush(connection, "receipts", {"order": 42})
    ```
    """
    row = outbox_row(
        queue,
        payload,
        key=key,
        headers=headers,
        delay=delay,
        priority=priority,
        idempotency_key=idempotency_key,
    )
    match _library(connection):
        case "psycopg", True:
            await connection.execute(_ADD, row)
        case "sqlalchemy", True:
            await connection.execute(_sqlalchemy_text(_dialect(connection)), row)
        case (("psycopg" | "sqlalchemy" | "django"), False):
            raise InvalidInput("this connection is synchronous; write `outbox.push(…)`")
        case _:
            raise _not_a_connection(connection)
    return str(row["id"])


def _library(connection: object) -> tuple[str, bool]:
    """Where the class of a connection comes from, and whether it is asynchronous."""
    if isinstance(connection, str):
        return "django", False
    for parent in type(connection).__mro__:
        root = parent.__module__.partition(".")[0]
        if root == "django" or (root == "psycopg" and hasattr(connection, "execute")):
            return root, "Async" in parent.__name__
        if root == "sqlalchemy" and hasattr(connection, "execute"):
            return root, "sqlalchemy.ext.asyncio" in parent.__module__
    return "", False


def _dialect(connection: Any) -> str:
    """The database behind a SQLAlchemy session or connection."""
    bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
    return str(bind.dialect.name)


def _sqlalchemy_text(dialect: str) -> Any:
    if dialect != "postgresql":
        raise InvalidInput(f"the outbox is for PostgreSQL; this connection speaks to `{dialect}`")
    # With SQLAlchemy's placeholders, because they work with every driver of PostgreSQL.
    return import_module("sqlalchemy").text(_PARAMETER.sub(r":\1", _ADD))


def push_through_django(connection: Any, row: Mapping[str, object]) -> None:
    """Write a row with a connection of Django, which may be given by its name in `DATABASES`."""
    if isinstance(connection, str):
        connection = import_module("django.db").connections[connection]
    if connection.vendor != "postgresql":
        raise InvalidInput(f"the outbox is for PostgreSQL; this connection speaks to `{connection.vendor}`")
    with connection.cursor() as cursor:
        cursor.execute(_ADD, row)


def _not_a_connection(connection: object) -> InvalidInput:
    return InvalidInput(f"a {type(connection).__name__} is not a connection; give {_TAKEN}")
