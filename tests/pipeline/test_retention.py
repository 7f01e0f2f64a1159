"""How long tiers keep is a setting."""

from __future__ import annotations

from weir.pipeline.definition import DEFINITIONS
from weir.pipeline.metric_tables import kept_days
from weir.warehouse import tables
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.retention import apply_retention
from weir.warehouse.tables import TierRetention


def ttl(warehouse: ClickHouseConnection, table: str) -> str:
    (row,) = warehouse.rows(f"SHOW CREATE TABLE {table}")
    return str(row["statement"]).partition("TTL ")[2].partition("\n")[0]


def test_only_tiers_that_keep_something_else_are_changed(warehouse: ClickHouseConnection) -> None:
    def applied(retention: TierRetention) -> list[str]:
        kept = (kept_days(definition, retention) for definition in DEFINITIONS)
        return [table for each in kept for table in apply_retention(warehouse, each)]

    assert applied(TierRetention()) == []
    changed = applied(TierRetention(minute_days=7))
    assert changed == [each.tiers[1].table for one in DEFINITIONS for each in one.tier_sets]
    assert ttl(warehouse, "queue_metrics_1m") == "bucket_start + toIntervalDay(7)"
    assert ttl(warehouse, "queue_metrics_1h") == "bucket_start + toIntervalDay(400)"
    assert applied(TierRetention(minute_days=7)) == []


def test_every_table_of_the_chain_remembers_tokens_long_enough(warehouse: ClickHouseConnection) -> None:
    """A table with a short memory would count a late retry twice, alone among its peers."""
    rows = warehouse.rows(
        "SELECT name, create_table_query AS ddl FROM system.tables "
        "WHERE database = currentDatabase() AND engine LIKE '%MergeTree' AND name != 'weir_migrations'"
    )
    setting = f"non_replicated_deduplication_window = {tables.DEDUPLICATION_WINDOW}"
    assert {row["name"] for row in rows if setting not in row["ddl"]} <= {"schema_migrations"}


def test_every_tier_has_small_granules(warehouse: ClickHouseConnection) -> None:
    """A window reads whole granules, and building the sketches in them costs most; so does finding a life."""
    tiers = {tier.table for one in DEFINITIONS for each in one.tier_sets for tier in each.tiers}
    rows = warehouse.rows(
        "SELECT name FROM system.tables WHERE database = currentDatabase() "
        f"AND create_table_query LIKE '%index_granularity = {tables.GRANULE_ROWS},%'"
    )
    assert {row["name"] for row in rows} == tiers | {tables.LIVES}
