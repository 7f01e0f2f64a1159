"""Every named query can be prepared on a migrated database."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import psycopg
import pytest

import weir
from weir.control.sql import NamedQuery, parse_queries
from weir.outbox import migrate as migrate_outbox

SOURCE = Path(weir.__file__).parent
BENCHES = SOURCE.parents[1] / "benches"
NOT_POSTGRES = {"warehouse"}
CLICKHOUSE_FILES = {BENCHES / name for name in ("query.sql", "lives_rows.sql", "neighbour.sql")}
PREPARABLE = {"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "VALUES", "WITH"}
PARAMETER = re.compile(r"%\((\w+)\)[sbt]")


def named_queries() -> list[tuple[str, NamedQuery]]:
    found = []
    for file in sorted([*SOURCE.rglob("*.sql"), *BENCHES.glob("*.sql")]):
        room = file.relative_to(SOURCE).parts[0] if file.is_relative_to(SOURCE) else "benches"
        if file.parent.name != "migrations" and room not in NOT_POSTGRES and file not in CLICKHOUSE_FILES:
            origin = f"{room}/{file.name}"
            found += [(origin, query) for query in parse_queries(file.read_text(), origin=origin).values()]
    return found


def numbered(text: str) -> str:
    """psycopg's named parameters as PostgreSQL's numbered ones."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return PARAMETER.sub(number, text).replace("%%", "%")


def try_out(connection: psycopg.Connection, query: NamedQuery, *, name: str) -> None:
    """Prepare it; what cannot be prepared, such as LOCK and SET, runs in a transaction that is undone."""
    text = numbered(query.text)
    if text.split(None, 1)[0].upper() in PREPARABLE:
        connection.execute(f"PREPARE {name} AS {text}".encode())
        return
    with connection.transaction(force_rollback=True):
        connection.execute(text.encode())


def test_every_query_prepares_on_a_migrated_database(database_url: str) -> None:
    asyncio.run(migrate_outbox(database_url))
    failures = []
    with psycopg.connect(database_url, autocommit=True) as connection:
        for index, (origin, query) in enumerate(named_queries()):
            try:
                try_out(connection, query, name=f"q{index}")
            except psycopg.Error as error:
                failures.append(f"{origin}: `{query.name}`: {str(error).splitlines()[0]}")
    assert failures == []


def test_a_sentence_may_take_several_lines() -> None:
    (query,) = parse_queries("-- name: first\n-- The first\n-- one.\nSELECT 1", origin="x.sql").values()
    assert (query.sentence, query.text) == ("The first one.", "SELECT 1")
    with pytest.raises(ValueError, match="`first` is empty"):
        parse_queries("-- name: first\n-- One.\n-- name: second\n-- Two.\nSELECT 1", origin="x.sql")


def test_what_queries_share_is_written_once() -> None:
    text = """
-- part: PLACE
coalesce(a, b)

-- part: ORDERED
SELECT $PLACE FROM t
ORDER BY $PLACE

-- name: first
-- The first one.
$ORDERED LIMIT 1;
"""
    (query,) = parse_queries(text, origin="x.sql").values()
    assert query.text == "SELECT coalesce(a, b) FROM t\nORDER BY coalesce(a, b) LIMIT 1;"
    with pytest.raises(ValueError, match=r"x.sql: no query uses the part `UNUSED`"):
        parse_queries("-- part: UNUSED\n1\n" + text, origin="x.sql")
