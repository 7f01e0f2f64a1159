"""Makes and changes the tables of registered metrics in ClickHouse, and refuses a start while one is missing.

The plan is the difference between a definition and what ClickHouse holds. So running it twice, or after a
kill in the middle, does what is left to do. Tables come before views: an insert never meets a view whose
target is missing. A view changes in place, so no insert passes between an old and a new one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from weir.errors import Misconfigured
from weir.pipeline.definition import DEFINITIONS, MetricDefinition
from weir.pipeline.metric_tables import MetricTable, MetricView, tables_of, views_of
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.tables import TierRetention

_COLUMNS = """
SELECT table, name, type
FROM system.columns
WHERE database = currentDatabase() AND table IN {names:Array(String)}
"""
_VIEWS = """
SELECT name, as_select
FROM system.tables
WHERE database = currentDatabase() AND name IN {names:Array(String)}
"""
_WIDTH = re.compile(r"UInt(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """One statement that brings ClickHouse nearer to a definition."""

    about: str
    """What is missing."""
    statement: str


def planned_changes(
    connection: ClickHouseConnection,
    definitions: Sequence[MetricDefinition],
    retention: TierRetention | None = None,
) -> list[TableChange]:
    """The changes that the tables and views of these metrics need, in the order in which to make them."""
    made = [table for one in definitions for table in tables_of(one, retention)]
    views = [view for one in definitions for view in views_of(one)]
    held = _columns(connection, [table.name for table in made])
    queries = _queries(connection, [view.name for view in views])
    targets = {table.name: table for table in made}
    return [
        *(change for table in made for change in _table_changes(table, held.get(table.name))),
        *(
            change
            for view in views
            for change in _view_changes(view, queries.get(view.name), targets.get(view.target))
        ),
    ]


def make_tables(
    connection: ClickHouseConnection, definitions: Sequence[MetricDefinition], retention: TierRetention
) -> list[str]:
    """Make everything that is missing; returns a description of each change."""
    changes = planned_changes(connection, definitions, retention)
    for change in changes:
        connection.command(change.statement)
    return [change.about for change in changes]


def require_tables(connection: ClickHouseConnection, definitions: Sequence[MetricDefinition]) -> None:
    """Refuse metrics whose tables or views are missing or older than their definitions."""
    own = [one for one in definitions if one not in DEFINITIONS]
    for change in planned_changes(connection, own):
        raise Misconfigured(f"ClickHouse lacks {change.about}; run `weir migrate` with the same settings")
    for definition in DEFINITIONS:
        # Migrations made these; without the view, a lost checkpoint would count events twice.
        needed = (definition.landing, *definition.tiers, definition.offsets_view)
        for name in sorted({*needed} - {*_columns(connection, needed)}):
            raise Misconfigured(
                f"ClickHouse lacks `{name}`, which a migration made; restore it from a backup"
            )


def _columns(connection: ClickHouseConnection, names: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for row in connection.rows(_COLUMNS, {"names": list(names)}):
        found.setdefault(row["table"], {})[row["name"]] = row["type"]
    return found


def _queries(connection: ClickHouseConnection, names: Sequence[str]) -> dict[str, str]:
    return {row["name"]: row["as_select"] for row in connection.rows(_VIEWS, {"names": list(names)})}


def _table_changes(table: MetricTable, held: Mapping[str, str] | None) -> Iterator[TableChange]:
    if held is None:
        yield TableChange(about=f"the table `{table.name}`", statement=table.create)
        return
    for name, type_ in table.columns:
        column = f"the column `{name}` of `{table.name}`"
        if name not in held:
            if name in table.key:
                raise Misconfigured(
                    f"{column} is part of its key and cannot be added later; give the metric another name"
                )
            yield TableChange(
                about=column, statement=f"ALTER TABLE {table.name} ADD COLUMN IF NOT EXISTS {name} {type_}"
            )
        elif held[name] != type_:
            if not _is_wider(type_, than=held[name]):
                raise Misconfigured(
                    f"{column} is `{held[name]}`, and the definition asks for `{type_}`; "
                    "give the field or the metric another name"
                )
            yield TableChange(
                about=f"the wider type of {column}",
                statement=f"ALTER TABLE {table.name} MODIFY COLUMN {name} {type_}",
            )


def _is_wider(new: str, *, than: str) -> bool:
    """Whether two types differ only in the width of a number, and the new one has more bits."""
    same = _WIDTH.sub("UInt", new) == _WIDTH.sub("UInt", than)
    pairs = zip(_WIDTH.findall(new), _WIDTH.findall(than), strict=True) if same else ()
    return same and all(int(width) >= int(before) for width, before in pairs)


def _view_changes(view: MetricView, query: str | None, target: MetricTable | None) -> Iterator[TableChange]:
    if query is None:
        yield TableChange(about=f"the view `{view.name}`", statement=view.create)
        return
    words = set(re.findall(r"\w+", query))
    lacking = [name for name, _ in (target.columns if target else ()) if name not in words]
    if lacking:
        yield TableChange(about=f"`{lacking[0]}` in the view `{view.name}`", statement=view.replace)
