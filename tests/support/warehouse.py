"""A warehouse under a test's control: its clock, its stream ends, and every reader on it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from weir.telemetry.stream_ids import StreamId
from weir.telemetry.switch import ShardSwitch
from weir.testing.clocks import ManualClock
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.reading.periods import Window, window_for
from weir.warehouse.reading.warehouse import open_warehouse

NOW_MS = int(time.time()) // 5 * 5_000
"""Real time, because the warehouse drops rows that are older than their tier keeps."""


class FixedTails:
    """Stream ends that the test sets."""

    def __init__(self) -> None:
        self.by_shard: dict[int, StreamId] = {}
        self.off_since_ms: int | None = None

    async def tails(self, metric: str) -> Mapping[int, StreamId]:
        return self.by_shard

    async def switches(self) -> Sequence[ShardSwitch]:
        off_ms = self.off_since_ms
        return [] if off_ms is None else [ShardSwitch(shard=0, off=True, since_ms=off_ms, by="a test")]


class WarehouseRig:
    """Every reader on one warehouse, at a time that stands still."""

    def __init__(self, url: str, *, now_ms: int = NOW_MS) -> None:
        self.clock = ManualClock(now_ms)
        self.tails = FixedTails()
        self.connection = ClickHouseConnection(url)
        self.warehouse = open_warehouse(
            url, tails=self.tails, shards=1, clock=self.clock, freshness_max_age_ms=0
        )

    def last(self, period_ms: int) -> Window:
        now_ms = self.clock.now_ms()
        return window_for(start_ms=now_ms - period_ms, end_ms=now_ms, now_ms=now_ms)

    async def aclose(self) -> None:
        await self.warehouse.aclose()
        self.connection.close()


def tier_rows(connection: ClickHouseConnection, table: str, *, where: str = "1") -> list[dict[str, Any]]:
    """The rows of a table of the warehouse: every column, merged by key, in order of the key."""
    described = connection.rows(
        "SELECT name, type, is_in_sorting_key AS in_key FROM system.columns "
        "WHERE database = currentDatabase() AND table = {table:String} AND name != 'landed_at'",
        {"table": table},
    )
    keys = [row["name"] for row in described if row["in_key"]]
    merged = [_merged(row["name"], row["type"]) for row in described if not row["in_key"]]
    selected, by = ", ".join([*keys, *merged]), ", ".join(keys)
    return connection.rows(f"SELECT {selected} FROM {table} AS t WHERE {where} GROUP BY {by} ORDER BY {by}")


def _merged(name: str, type_: str) -> str:
    function = type_.partition("(")[2].partition("(")[0].partition(",")[0]
    if type_.startswith("SimpleAggregateFunction"):
        return f"{function}(t.{name}) AS {name}"
    levels = ", ".join(str(number / 100) for number in range(101))
    accuracy = "0.01, " if function == "quantilesDD" else ""
    return f"arrayMap(x -> toString(x), {function}Merge({accuracy}{levels})(t.{name})) AS {name}"
