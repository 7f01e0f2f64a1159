"""`weir bench query` fills every tier in every column, and asks what it filled."""

from __future__ import annotations

from benches.query import Size, measure_on
from weir.warehouse.reading.periods import Resolution


async def test_the_bench_fills_the_tiers_and_gets_points_of_them(warehouse_url: str) -> None:
    days = dict.fromkeys(Resolution, 0.1)
    figures = await measure_on(warehouse_url, Size(queues=2, fine_queues=1, days=days, rounds=2))
    tiers = ("5s", "1m", "1h")
    assert {f"{of}_metrics_{tier}" for of in ("queue", "environment") for tier in tiers} <= figures[
        "rows"
    ].keys()
    assert figures["max_points"] > 0
