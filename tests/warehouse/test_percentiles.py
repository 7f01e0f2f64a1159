"""Percentiles are within 1 % of the wait at their rank, and the same in every tier."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benches.percentiles import percentile_max_error, ranked_waits, read_hard_waits, relative_error
from support.warehouse import WarehouseRig
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.percentiles import LEVELS, RELATIVE_ERROR, waits_sql

BOUND = RELATIVE_ERROR * (1 + 1e-9)
"""The last digits of a floating point number are not part of the promise."""
_ROWS = """
SELECT
    length(waits) AS wait_count,
    arraySum(waits) AS wait_sum_ms,
    arrayMax(waits) AS wait_max_ms,
    arrayReduce('quantilesTDigestState(0.5, 0.95, 0.99)', emptyArrayUInt32()) AS wait_digest,
    arrayReduce('quantilesDDState(0.01, 0.5, 0.95, 0.99)', waits) AS wait_sketch
FROM (SELECT arrayJoin({parts:Array(Array(UInt32))}) AS waits)
"""


@pytest.fixture(scope="module")
def connection(shared_url: str) -> Iterator[ClickHouseConnection]:
    with closing(ClickHouseConnection(shared_url)) as connection:
        yield connection


def percentiles(
    connection: ClickHouseConnection, parts: Sequence[Sequence[int]], *, digests: bool = False
) -> list[float]:
    """The percentiles of rows with these waits, as every reader asks for them."""
    (row,) = connection.rows(
        f"SELECT {waits_sql('t', digests=digests)} FROM ({_ROWS}) AS t",
        {"parts": [list(part) for part in parts]},
    )
    return list(row["wait_percentiles"])


_SOME_WAITS = st.one_of(
    st.integers(0, 60), st.integers(0, 2**32 - 1), st.floats(0, 22).map(lambda power: int(2.718**power))
)


@settings(max_examples=150, deadline=None)
@given(waits=st.lists(_SOME_WAITS, min_size=1, max_size=220), parts=st.integers(1, 5), seed=st.integers(0))
def test_percentiles_stay_within_the_bound(
    connection: ClickHouseConnection, waits: list[int], parts: int, seed: int
) -> None:
    mixed = random.Random(seed).sample(waits, len(waits))
    found = percentiles(connection, [mixed[number::parts] for number in range(parts)])
    for estimate, allowed in zip(found, ranked_waits(waits), strict=True):
        assert relative_error(estimate, allowed) <= BOUND
        assert estimate <= max(waits)
        if max(allowed) < 49:
            assert estimate in allowed
    assert found == percentiles(connection, [sorted(waits)])
    assert found == percentiles(connection, [sorted(waits)], digests=True)


def test_the_hardest_waits_stay_within_the_bound_in_every_tier(connection: ClickHouseConnection) -> None:
    assert 0 < percentile_max_error(connection) <= BOUND


def test_every_tier_gives_the_same_percentiles(connection: ClickHouseConnection) -> None:
    answers: dict[str, set[tuple[float, ...]]] = {}
    for reading in read_hard_waits(connection):
        answers.setdefault(reading.name, set()).add(reading.percentiles)
    assert [name for name, found in answers.items() if len(found) > 1] == []


@pytest.mark.parametrize("count", range(1, 10))
def test_of_few_waits_the_upper_rank_counts(connection: ClickHouseConnection, count: int) -> None:
    waits = [10 * number for number in range(1, count + 1)]
    *_, p95, p99 = percentiles(connection, [[wait] for wait in waits])
    assert p95 == p99 == pytest.approx(waits[-1], rel=BOUND)


_MANY = """
SELECT
    toUInt64(4000000) AS wait_count,
    toUInt64(0) AS wait_sum_ms,
    toUInt32(20) AS wait_max_ms,
    arrayReduce('quantilesTDigestState(0.5, 0.95, 0.99)', emptyArrayUInt32()) AS wait_digest,
    quantilesDDState(0.01, 0.5, 0.95, 0.99)(toUInt32(if(number < {low:UInt32}, 10, 20))) AS wait_sketch
FROM numbers(4000000)
"""


@pytest.mark.parametrize("digests", [False, True])
@pytest.mark.parametrize("number", range(len(LEVELS)))
def test_of_many_waits_the_rank_is_exact_or_one_lower(
    connection: ClickHouseConnection, number: int, digests: bool
) -> None:
    low = round(4_000_000 * LEVELS[number])
    for count, expected in ((low, 10), (low - 2, 20)):
        asked = f"SELECT {waits_sql('t', digests=digests)} FROM ({_MANY}) AS t"
        (row,) = connection.rows(asked, {"low": count})
        assert row["wait_percentiles"][number] == expected


async def test_without_waits_there_is_no_percentile(rig: WarehouseRig) -> None:
    (row,) = rig.connection.rows(
        f"SELECT {waits_sql('t', digests=True)} FROM ({_ROWS}) AS t", {"parts": [[], []]}
    )
    assert (row["wait_count"], row["wait_sketches"]) == (0, 0)
