"""Sets for how long each table keeps its rows."""

from __future__ import annotations

from collections.abc import Mapping

from weir.warehouse.connection import ClickHouseConnection

_TTL = """
SELECT create_table_query AS ddl
FROM system.tables
WHERE database = currentDatabase() AND name = {name:String}
"""


def apply_retention(connection: ClickHouseConnection, kept_days: Mapping[str, int]) -> list[str]:
    """Set the TTL of every table that has another TTL, and return the changed tables."""
    changed = []
    for table, days in kept_days.items():
        (row,) = connection.rows(_TTL, {"name": table})
        if f"TTL bucket_start + toIntervalDay({days})" not in row["ddl"]:
            # Without materializing: merges drop old rows later, and a start does not rewrite whole tables.
            connection.command(
                f"ALTER TABLE {table} MODIFY TTL bucket_start + toIntervalDay({days:d}) "
                "SETTINGS materialize_ttl_after_modify = 0"
            )
            changed.append(table)
    return changed
