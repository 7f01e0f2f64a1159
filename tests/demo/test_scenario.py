"""The shape of the demo's traffic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from statistics import mean

from weir.demo.scenario import SHOP, arrivals_per_second
from weir.model.durations import MINUTE_MS

MONDAY = datetime(2026, 11, 16, tzinfo=UTC)


def average(day: datetime) -> float:
    start_ms = int(day.timestamp() * 1000)
    return mean(
        arrivals_per_second(SHOP.queues[0], start_ms + minute * MINUTE_MS) for minute in range(24 * 60)
    )


def test_weekends_are_quieter_than_every_working_day() -> None:
    days = [average(MONDAY + timedelta(days=number)) for number in range(7)]
    assert max(days[5:]) < 0.75 * min(days[:5])
