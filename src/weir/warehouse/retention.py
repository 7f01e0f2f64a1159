"""Applies the settings for how long each tier keeps its rows to the tables."""

from __future__ import annotations

from weir.warehouse import tables
from weir.warehouse.connection import ClickHouseConnection

_TTL = """
SELECT create_table_query AS ddl
FROM system.tables
WHERE database = currentDatabase() AND name = {name:String}
"""


def apply_retention(connection: ClickHouseConnection, retention: tables.TierRetention) -> list[str]:
    """Set the TTL of every tier that has another one, and return the changed tables."""
    changed = []
    for each in tables.TIER_SETS:
        for tier, days in zip(each.tiers, retention.by_step, strict=True):
            (row,) = connection.rows(_TTL, {"name": tier.table})
            if f"TTL bucket_start + toIntervalDay({days})" not in row["ddl"]:
                # Without materializing: merges drop old rows later, and a start does not rewrite whole
                # tables.
                connection.command(
                    f"ALTER TABLE {tier.table} MODIFY TTL bucket_start + toIntervalDay({days:d}) "
                    "SETTINGS materialize_ttl_after_modify = 0"
                )
                changed.append(tier.table)
    return changed
