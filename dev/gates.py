"""The gates that `weir check` implements itself: headers of Lua and SQL, and imports of drivers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import weir
from dev import ROOT
from weir.control.migrate import read_migrations
from weir.control.sql import parse_queries
from weir.warehouse.statements import split_statements

_SOURCE = Path(weir.__file__).parent
_INCLUDE = re.compile(r'^include "(\w+)"', re.MULTILINE)
_CONTRACT = ("KEYS", "ARGV", "reply")
_RUNS_TWICE = re.compile(
    r"IF NOT EXISTS|IF EXISTS|OR REPLACE|MODIFY (COLUMN|TTL|SETTING|COMMENT|QUERY)|RESET SETTING",
    re.IGNORECASE,
)
_ROOMS_OF = {
    "redis": {"broker", "telemetry", "redis_client.py"},
    "psycopg": {"control", "operations", "deadletters", "alerts", "schedules", "outbox"},
    "clickhouse_connect": {"warehouse"},
    "pyspark": {"pipeline"},
    "fastapi": {"api", "contrib"},
    "starlette": {"api", "ingress", "dashboard"},
    "chdb": {"embedded"},
}
"""Driver -> the rooms that may import it. Rooms that compose or measure the others are free."""
_FREE = {"demo", "serve", "testing"}
_IMPORT = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)
_MIGRATIONS = ("weir.control.migrations", "weir.warehouse.migrations", "weir.outbox.migrations")


def problems() -> list[str]:
    """Every problem, with the file that has it."""
    return [
        *lua_problems(_SOURCE),
        *query_problems(_SOURCE),
        *query_problems(ROOT / "benches"),
        *migration_problems(),
        *driver_problems(_SOURCE),
    ]


def lua_problems(source: Path) -> Iterator[str]:
    """Scripts that do not begin with their contract; a part of it may be in the scripts that they include."""
    for file in sorted(source.rglob("*.lua")):
        header = _lua_header(file.read_text())
        where = file.relative_to(source)
        if not header:
            yield f"{where}: starts without a comment that says what it is for"
        elif file.parent.name == "lua":
            contract = header + _included_headers(file.parent / "includes", header)
            missing = [word for word in _CONTRACT if word.lower() not in contract.lower()]
            if missing:
                yield f"{where}: its contract does not mention {', '.join(missing)}"


def query_problems(source: Path) -> Iterator[str]:
    """Files of named queries that do not parse, because a query lacks its name or its sentence."""
    for file in sorted(source.rglob("*.sql")):
        if file.parent.name == "migrations":
            continue
        try:
            parse_queries(file.read_text(), origin=str(file.relative_to(source)))
        except ValueError as error:
            yield str(error)


def migration_problems() -> Iterator[str]:
    """Migrations that do not begin with a sentence, and migrations of ClickHouse that cannot run twice."""
    for package in _MIGRATIONS:
        for migration in read_migrations(package):
            if not migration.text.startswith("-- "):
                yield f"{package}/{migration}: starts without a comment that says what it does"
            if package == "weir.warehouse.migrations":
                for statement in split_statements(migration.text):
                    if not _RUNS_TWICE.search(statement):
                        first = _code(statement)[:60]
                        yield f"{package}/{migration}: `{first} …` cannot run twice; say IF NOT EXISTS"


def driver_problems(source: Path) -> Iterator[str]:
    """Files that import a driver outside of its rooms."""
    for file in sorted(source.rglob("*.py")):
        where = file.relative_to(source)
        room = where.parts[0]
        for name in sorted(set(_IMPORT.findall(file.read_text())) & _ROOMS_OF.keys()):
            if room not in _ROOMS_OF[name] | _FREE:
                yield f"{where}: imports `{name}`, which only {', '.join(sorted(_ROOMS_OF[name]))} may"


def _code(statement: str) -> str:
    return " ".join(line for line in statement.splitlines() if not line.startswith("--"))


def _included_headers(folder: Path, header: str) -> str:
    files = [folder / f"{name}.lua" for name in _INCLUDE.findall(header)]
    # Some blocks are generated and have no file.
    return "".join(_lua_header(file.read_text()) for file in files if file.exists())


def _lua_header(text: str) -> str:
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("--"):
            lines.append(line.lstrip("- "))
        elif line.startswith("#!") and not lines:
            continue
        else:
            break
    return "\n".join(lines)
