"""A push inside a transaction exists if and only if the transaction commits, whatever library holds it."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from http import HTTPMethod
from types import MappingProxyType
from typing import Any
from uuid import UUID

import django
import psycopg
import pytest
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from weir.client.encoding import encode
from weir.errors import InvalidInput, TooLarge
from weir.outbox import apush, migrate, push


class Rollback(Exception):
    """Ends a transaction without its effect."""


def rows(url: str) -> list[dict[str, Any]]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        return connection.execute("SELECT * FROM weir_outbox.messages ORDER BY position").fetchall()


def payloads(url: str) -> list[Any]:
    return [json.loads(row["payload"]) for row in rows(url)]


def test_every_part_of_a_push_is_kept(shop_url: str) -> None:
    with psycopg.connect(shop_url) as connection:
        made = push(
            connection,
            "Bestellungen ✓",
            {"order": 42, "name": "Zoë"},
            key="k",
            headers={"a": "b"},
            delay=timedelta(seconds=5),
            priority=7,
            idempotency_key="once",
        )
        push(connection, "raw", b"\x00\xff")
    first, second = rows(shop_url)
    assert (str(first["id"]), first["queue"], first["key"]) == (made, "Bestellungen ✓", "k")
    assert (first["priority"], first["delay_ms"], first["idempotency_key"]) == (7, 5_000, "once")
    assert (json.loads(first["payload"]), json.loads(first["headers"])) == (
        {"order": 42, "name": "Zoë"},
        {"a": "b"},
    )
    assert (bytes(second["payload"]), second["is_json"], second["key"]) == (b"\x00\xff", False, None)


def test_psycopg_commits_and_rolls_back(shop_url: str) -> None:
    with psycopg.connect(shop_url) as connection:
        push(connection, "q", 1)
        with connection.cursor() as cursor:
            push(cursor, "q", 2)
        with suppress(Rollback), connection.transaction():
            push(connection, "q", "undone with its savepoint")
            raise Rollback
    with suppress(Rollback), psycopg.connect(shop_url) as connection:
        push(connection, "q", "undone")
        raise Rollback
    with psycopg.connect(shop_url, autocommit=True) as connection:
        push(connection, "q", 3)
    assert payloads(shop_url) == [1, 2, 3]
    assert all(row["position"] is not None for row in rows(shop_url))


async def test_async_psycopg_commits_and_rolls_back(shop_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(shop_url) as connection:
        await apush(connection, "q", 1)
        async with connection.cursor() as cursor:
            await apush(cursor, "q", 2)
    with suppress(Rollback):
        async with await psycopg.AsyncConnection.connect(shop_url) as connection:
            await apush(connection, "q", "undone")
            raise Rollback
    assert payloads(shop_url) == [1, 2]


def test_sqlalchemy_commits_and_rolls_back(shop_url: str) -> None:
    engine = sqlalchemy.create_engine(shop_url.replace("postgresql://", "postgresql+psycopg://", 1))
    with Session(engine) as session, session.begin():
        push(session, "q", {"a": 1}, key="k", headers={"x": "y"}, delay=1)
        with suppress(Rollback), session.begin_nested():
            push(session, "q", "undone with its savepoint")
            raise Rollback
    with engine.begin() as connection:
        push(connection, "q", b"raw")
    with suppress(Rollback), Session(engine) as session, session.begin():
        push(session, "q", "undone")
        raise Rollback
    engine.dispose()
    assert [bytes(row["payload"]) for row in rows(shop_url)] == [b'{"a":1}', b"raw"]


async def test_async_sqlalchemy_commits_and_rolls_back(shop_url: str) -> None:
    engine = create_async_engine(shop_url.replace("postgresql://", "postgresql+psycopg://", 1))
    async with AsyncSession(engine) as session, session.begin():
        await apush(session, "q", 1)
    async with engine.begin() as connection:
        await apush(connection, "q", 2)
    with suppress(Rollback):
        async with AsyncSession(engine) as session, session.begin():
            await apush(session, "q", "undone")
            raise Rollback
    await engine.dispose()
    assert payloads(shop_url) == [1, 2]


@pytest.fixture
def django_shop(shop_url: str) -> str:
    """The database as Django's `shop`; its settings are made once per process."""
    parts = psycopg.conninfo.conninfo_to_dict(shop_url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "PASSWORD": parts.get("password", ""),
        "HOST": parts["host"],
        "PORT": str(parts["port"]),
    }
    lite = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    if not settings.configured:
        settings.configure(DATABASES={"default": lite, "shop": database})
        django.setup()
    connections["shop"].close()
    connections["shop"].settings_dict.update(database)
    return shop_url


def test_django_commits_and_rolls_back(django_shop: str) -> None:
    with transaction.atomic(using="shop"):
        push("shop", "q", {"a": 1}, key="k", headers={"x": "y"}, delay=1)
        with suppress(Rollback), transaction.atomic(using="shop"):
            push("shop", "q", "undone with its savepoint")
            raise Rollback
    with transaction.atomic(using="shop"):
        push(connections["shop"], "q", b"raw")
    with suppress(Rollback), transaction.atomic(using="shop"):
        push("shop", "q", "undone")
        raise Rollback
    connections["shop"].close()
    assert [bytes(row["payload"]) for row in rows(django_shop)] == [b'{"a":1}', b"raw"]


def test_another_database_is_refused(django_shop: str) -> None:
    with pytest.raises(InvalidInput, match="this connection speaks to `sqlite`"):
        push("default", "q", 1)
    with (
        sqlalchemy.create_engine("sqlite://").connect() as connection,
        pytest.raises(InvalidInput, match="this connection speaks to `sqlite`"),
    ):
        push(connection, "q", 1)


async def test_the_wrong_call_for_a_connection_says_the_right_one(shop_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(shop_url) as connection:
        with pytest.raises(InvalidInput, match=r"await outbox\.apush"):
            push(connection, "q", 1)
    with (
        psycopg.connect(shop_url) as connection,
        pytest.raises(InvalidInput, match=r"write `outbox.push"),
    ):
        await apush(connection, "q", 1)
    with pytest.raises(InvalidInput, match=r"a object is not a connection; give a psycopg"):
        push(object(), "q", 1)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"queue": ""}, InvalidInput, "a queue name is empty"),
        ({"payload": "x" * (640 << 10)}, TooLarge, "at most 655360"),
        ({"payload": float("nan")}, InvalidInput, "no JSON form"),
        ({"payload": object()}, InvalidInput, "object has no JSON form"),
        ({"payload": {1, 2}}, InvalidInput, "send bytes"),
        ({"key": "a\x00b"}, InvalidInput, "control character"),
        ({"headers": {"a": 1}}, InvalidInput, "is not text"),
        ({"headers": {"a": "b" * (64 << 10)}}, TooLarge, "the headers have"),
        ({"priority": 10}, InvalidInput, "priority is 10"),
        ({"delay": -1}, Exception, "-1"),
        ({"delay": 400 * 86_400}, InvalidInput, "delay_ms"),
        ({"idempotency_key": ""}, InvalidInput, "idempotency key"),
    ],
)
def test_what_no_queue_could_take_is_refused_before_anything_is_written(
    shop_url: str, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with psycopg.connect(shop_url) as connection:
        with pytest.raises(error, match=said):
            push(connection, **{"queue": "q", "payload": 1, **options})
        push(connection, "q", "the transaction goes on")
    assert payloads(shop_url) == ["the transaction goes on"]


async def test_making_the_outbox_again_keeps_what_is_in_it(shop_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(shop_url) as connection:
        await apush(connection, "q", 1)
    await migrate(shop_url)
    assert payloads(shop_url) == [1]


def test_a_role_that_may_only_insert_can_push(shop_url: str) -> None:
    with psycopg.connect(shop_url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS weir_outbox_app")
        admin.execute("CREATE ROLE weir_outbox_app")
        admin.execute("GRANT USAGE ON SCHEMA weir_outbox TO weir_outbox_app")
        admin.execute("GRANT INSERT ON weir_outbox.messages TO weir_outbox_app")
        with psycopg.connect(shop_url) as connection:
            connection.execute("SET ROLE weir_outbox_app")
            push(connection, "q", 1, key="k")
        admin.execute("DROP OWNED BY weir_outbox_app")
        admin.execute("DROP ROLE weir_outbox_app")
    assert payloads(shop_url) == [1]


@pytest.mark.parametrize("payload", [UUID(int=7), HTTPMethod.GET, MappingProxyType({"é": [1, 2.5, None]})])
def test_a_payload_has_the_same_bytes_as_in_a_push_over_http(shop_url: str, payload: Any) -> None:
    with psycopg.connect(shop_url) as connection:
        push(connection, "q", payload)
        (row,) = connection.execute("SELECT payload FROM weir_outbox.messages").fetchall()
    assert row[0] == encode(payload)
