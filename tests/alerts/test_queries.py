"""The SQL of the room: every statement prepares on a migrated database, and each is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weir.control.database import Database
from weir.control.sql import load_queries

FOLDER = Path(__file__).parents[2] / "src" / "weir" / "alerts"
FILES = sorted(path.name for path in FOLDER.glob("*.sql"))


@pytest.mark.parametrize("file", FILES)
def test_no_statement_is_left_over(file: str) -> None:
    code = "".join(path.read_text() for path in FOLDER.glob("*.py"))
    unused = [name for name in load_queries("weir.alerts", file) if f'["{name}"]' not in code]
    assert unused == []


async def test_every_statement_prepares(database: Database) -> None:
    async with database.connection() as connection:
        for file in FILES:
            for name, query in load_queries("weir.alerts", file).items():
                names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", query.text)))
                numbered = query.text
                for number, parameter in enumerate(names, start=1):
                    numbered = numbered.replace(f"%({parameter})s", f"${number}")
                await connection.execute(f"PREPARE {name} AS {numbered.rstrip(';')}")
                await connection.execute(f"DEALLOCATE {name}")
