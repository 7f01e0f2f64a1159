"""The time of the store, on hosts whose clocks are wrong."""

from __future__ import annotations

import time

from weir.control.database import Database
from weir.control.store_clock import StoreClock
from weir.testing.clocks import ManualClock


def true_ms() -> float:
    return time.time() * 1_000


async def test_the_time_is_postgresqls_whatever_the_host_says(database: Database) -> None:
    host, seconds = ManualClock(5), 1_000.0
    clock = StoreClock(database, host=host, monotonic_s=lambda: seconds)
    assert clock.now_ms() == 5
    before_ms = true_ms()
    await clock.ask()
    first_ms = clock.now_ms()
    assert before_ms - 1 <= first_ms <= true_ms() + 1
    host.advance(-3_600_000)
    assert clock.now_ms() == first_ms
    seconds += 7.5
    assert clock.now_ms() == first_ms + 7_500


async def test_the_last_answer_holds_while_postgresql_is_away(database: Database) -> None:
    clock = StoreClock(database, host=ManualClock(5))
    await clock.ask()
    await database.aclose()
    assert abs(clock.now_ms() - true_ms()) < 5_000
