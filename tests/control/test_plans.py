"""No named query reads a whole table that grows: each is explained on a large database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.control.test_named_queries import PARAMETER, PREPARABLE, named_queries, numbered

from weir.control.sql import NamedQuery

ROWS = 30_000
GROWING = (
    "dead_letters",
    "dead_letter_tasks",
    "delivery_log",
    "idempotency_keys",
    "message_attempts",
    "message_children",
    "operations",
)
"""They have a row per message, death, operation, delivery or bulk action."""
TENANT = {"organization": 50, "project": 50, "environment": 50, "queue": 500}
"""How many different values the names of tenants and queues have."""
_COLUMNS = """
SELECT column_name AS name, data_type AS type, udt_name AS udt, is_nullable = 'YES' AS nullable
FROM information_schema.columns
WHERE table_schema = 'weir' AND table_name = %s AND is_identity = 'NO' AND is_generated = 'NEVER'
ORDER BY ordinal_position
"""
_CHECKS = """
SELECT conname FROM pg_constraint
WHERE conrelid = ('weir.' || %s)::regclass AND contype IN ('c', 'f')
"""


def value_of(column: dict[str, Any]) -> str:
    """An expression over `n` for a column. One that may be null mostly is."""
    name, kind = column["name"], column["type"]
    if name in TENANT:
        return f"'{name} ' || n % {TENANT[name]}"
    if name in ("state", "status") and kind == "text":
        return "CASE WHEN n % 100 = 0 THEN 'pending' ELSE 'completed' END"
    if name in ("consumer_key", "group_key"):
        return "n % 100"
    plain = {
        "uuid": "gen_random_uuid()",
        "text": f"'{name} ' || n",
        "bigint": "n",
        "integer": "n % 1000",
        "smallint": "n % 10",
        "boolean": "n % 100 <> 0",
        "double precision": "n",
        "jsonb": "'{}'::jsonb",
        "json": "'{}'::json",
        "bytea": "convert_to(repeat('x', 100) || n, 'UTF8')",
        "ARRAY": f"'{{}}'::{column['udt'][1:]}[]",
        "USER-DEFINED": "weir.message_ids(md5(n::text)::uuid, md5(n::text)::uuid, '[]')",
    }
    mostly_null = column["nullable"] and name not in ("message_ids", "finished_ms", "finished_at_ms")
    return f"CASE WHEN n % 10 = 0 THEN {plain[kind]} END" if mostly_null else plain[kind]


def fill(connection: psycopg.Connection[dict[str, Any]], table: str) -> None:
    for check in connection.execute(_CHECKS, (table,)).fetchall():
        drop = sql.SQL("ALTER TABLE weir.{} DROP CONSTRAINT {} CASCADE")
        connection.execute(drop.format(sql.Identifier(table), sql.Identifier(check["conname"])))
    columns = connection.execute(_COLUMNS, (table,)).fetchall()
    names = sql.SQL(", ").join(sql.Identifier(column["name"]) for column in columns)
    values = sql.SQL(", ".join(value_of(column) for column in columns))
    insert = sql.SQL("INSERT INTO weir.{} ({}) SELECT {} FROM generate_series(1, {}) AS n")
    connection.execute(insert.format(sql.Identifier(table), names, values, sql.Literal(ROWS)))


@pytest.fixture
def large(database_url: str) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    with psycopg.connect(database_url, autocommit=True, row_factory=psycopg.rows.dict_row) as connection:
        for table in GROWING:
            fill(connection, table)
        connection.execute("ANALYZE")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        yield connection


def scanned(plan: dict[str, Any]) -> Iterator[str]:
    """The tables that a plan reads from end to end."""
    if plan["Node Type"] == "Seq Scan" and plan.get("Schema", "weir") == "weir":
        yield plan["Relation Name"]
    for part in plan.get("Plans", ()):
        yield from scanned(part)


def plan_of(connection: psycopg.Connection[dict[str, Any]], query: NamedQuery) -> dict[str, Any]:
    """The plan that holds for any parameters."""
    text = numbered(query.text)
    connection.execute(f"PREPARE explained AS {text}".encode())
    count = len(set(PARAMETER.findall(query.text)))
    values = f"({', '.join(['NULL'] * count)})" if count else ""
    row = connection.execute(f"EXPLAIN (FORMAT json) EXECUTE explained{values}".encode()).fetchone()
    connection.execute("DEALLOCATE explained")
    assert row is not None
    found: dict[str, Any] = row["QUERY PLAN"][0]["Plan"]
    return found


def scans(connection: psycopg.Connection[dict[str, Any]]) -> dict[str, list[str]]:
    """The queries that read whole tables that grow, and which."""
    found = {}
    for origin, query in named_queries():
        explained = query.text.split(None, 1)[0].upper() in PREPARABLE
        if not explained or origin.startswith(("benches/", "outbox/")):
            continue
        if tables := sorted(set(scanned(plan_of(connection, query))) & {*GROWING}):
            found[f"{origin}: {query.name}"] = tables
    return found


def test_no_query_reads_a_whole_table_that_grows(large: psycopg.Connection[dict[str, Any]]) -> None:
    assert scans(large) == {}
    large.execute("DROP INDEX weir.message_children_by_child")
    assert "message_children" in {table for tables in scans(large).values() for table in tables}
