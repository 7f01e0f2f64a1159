"""The error of percentiles against the exact waits, through the real tables and with difficult waits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weir.model.durations import HOUR_MS
from weir.pipeline.definition import QUEUE_METRIC
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.percentiles import LEVELS, waits_sql
from weir.warehouse.tables import ENVIRONMENTS, QUEUES

Waits = NDArray[np.uint32]
_PROJECT = "percentiles"
_INSERTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The percentiles of one set of waits in one tier."""

    table: str
    name: str
    percentiles: tuple[float, ...]
    waits: Waits

    @property
    def max_error(self) -> float:
        """The greatest relative error against the waits at the ranks of the levels."""
        return max(map(relative_error, self.percentiles, ranked_waits(self.waits)))


def percentile_max_error(connection: ClickHouseConnection) -> float:
    """The greatest relative error of any percentile of `hard_waits` in any tier of a migrated warehouse."""
    return max(reading.max_error for reading in read_hard_waits(connection))


def read_hard_waits(connection: ClickHouseConnection) -> Iterator[Reading]:
    """Land every set of waits in several inserts, in its own environment, and read it from every tier."""
    organization, waits = f"bench-{uuid4().hex}", hard_waits()
    _land(connection, organization, waits)
    for tier in (*QUEUES.tiers, *ENVIRONMENTS.tiers):
        rows = connection.rows(
            f"SELECT environment, {waits_sql('t')} FROM {tier.table} AS t "
            "WHERE organization = {organization:String} GROUP BY environment",
            {"organization": organization},
        )
        if {row["environment"] for row in rows} != waits.keys():
            raise RuntimeError(f"`{tier.table}` does not hold what was landed")
        for row in rows:
            name = row["environment"]
            yield Reading(
                table=tier.table, name=name, percentiles=tuple(row["wait_percentiles"]), waits=waits[name]
            )


def ranked_waits(waits: Waits | Sequence[int]) -> list[tuple[int, ...]]:
    """The waits that are right for each level: the wait at its rank, and the one below.

    The rank is that of numpy's `inverted_cdf`. At the rank of the greatest wait only that wait is right.
    """
    ordered = np.sort(np.asarray(waits, dtype=np.uint32))
    found: list[tuple[int, ...]] = []
    for level in LEVELS:
        exact = np.quantile(ordered, level, method="inverted_cdf")
        rank = int(np.quantile(np.arange(len(ordered)), level, method="inverted_cdf"))
        below = ordered[rank - 1] if 0 < rank < len(ordered) - 1 else exact
        found.append((int(exact), int(below)))
    return found


def relative_error(estimate: float, allowed: Sequence[int]) -> float:
    """The error against the nearest of the allowed waits."""
    return min(_relative_error(estimate, exact) for exact in allowed)


def _relative_error(estimate: float, exact: int) -> float:
    if exact == 0:
        return 0.0 if estimate == 0 else float("inf")
    return abs(estimate - exact) / exact


def hard_waits() -> Mapping[str, Waits]:
    """Sets of waits that are difficult for sketches: steps at the ranks, long tails, few or equal waits."""
    chance = np.random.default_rng(7)
    sets: dict[str, NDArray[np.float64] | Sequence[int]] = {
        "uniform": chance.uniform(0, 10_000, 5_000),
        "lognormal": chance.lognormal(6, 1.5, 5_000),
        "heavy tail": 100 * (1 + chance.pareto(0.7, 5_000)),
        "mostly zero": np.where(chance.random(5_000) < 0.6, 0, chance.uniform(50, 90, 5_000)),
        "all equal": [1_234] * 1_000,
        "all zero": [0] * 100,
        "greatest": [2**32 - 1] * 3,
        "powers": [2**power for power in range(32)],
        "one by one": range(1_000),
    }
    for count in (*range(1, 13), 19, 20, 21, 99, 100, 101):
        sets[f"{count} waits"] = chance.lognormal(7, 2, count)
    for level in LEVELS:
        for shift in (-1, 0, 1):
            low = round(1_000 * level) + shift
            humps = (chance.normal(200, 20, low), chance.normal(60_000, 5_000, 1_000 - low))
            sets[f"humps split at {level} {shift:+}"] = np.concatenate(humps)
            sets[f"zeros until {level} {shift:+}"] = [0] * low + [5_000] * (1_000 - low)
    whole = {name: np.clip(np.rint(waits), 0, 2**32 - 1).astype(np.uint32) for name, waits in sets.items()}
    return {name: chance.permutation(waits) for name, waits in whole.items()}


def _land(connection: ClickHouseConnection, organization: str, sets: Mapping[str, Waits]) -> None:
    """Land every set in several inserts, each in its own bucket, within one hour."""
    start_s = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS // 1_000
    for number in range(_INSERTS):
        pieces = {name: waits[number::_INSERTS] for name, waits in sets.items()}
        at_s = start_s + 65 * number
        rows = [
            {
                "organization": organization,
                "project": _PROJECT,
                "environment": name,
                "queue": name,
                "bucket_start": at_s // 5 * 5,
                "last_at": at_s * 1_000,
                "events": 1,
                "wait_ms": waits.tolist(),
            }
            for name, waits in pieces.items()
        ]
        connection.insert(QUEUE_METRIC.landing, pa.Table.from_pylist(rows, schema=_SCHEMA), token=uuid4().hex)


_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("organization", "project", "environment", "queue"), pa.string()),
        "bucket_start": pa.uint32(),
        "last_at": pa.timestamp("ms", tz="UTC"),
        "events": pa.uint64(),
        "wait_ms": pa.list_(pa.uint32()),
    }
)
