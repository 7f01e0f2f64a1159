"""The warehouse's tables: the contract between the pipeline, which fills them, and their readers.

Every metric has a landing table (engine Null). One insert into it feeds all tiers through views, so
the tiers hold the same events. A bucket of a queue, environment or process may have several rows until
ClickHouse merges them, so every query aggregates with GROUP BY.

    events                     sum    how many events the bucket holds
    enqueued … cancelled       sum    counters, named as in `telemetry.events`
    max_queue_length …         max    a gauge's maximum in the bucket: what charts show
    min_queue_length …         min    the minimum of a gauge that is measured (not of limits and `paused`)
    sum_queue_length …         sum    such a gauge summed over events; its mean is this sum / gauge_count
    gauge_count                sum    the events in these sums
    last                       max    a tuple: time and sequence of the last event, then every gauge after
                                      it, by name (`max(last).queue_length`): carried forward
    enqueued_total …           max    odometers (queues only)
    wait_count, wait_sum_ms    sum    the number of waits, and their sum
    wait_max_ms                max
    wait_sketch                quantilesDD, 1 %; read with `warehouse.percentiles`
    wait_digest                quantilesTDigest: the waits of rows from before migration 0007, empty in later
                               ones; the column can go when those have expired in the hours (400 days)

In rows from before migration 0007 `cancelled`, minima, sums of gauges and `gauge_count` are null. A bucket
with rows from before and after it has the minimum and the mean of the later ones.

`metric_gaps` holds the spans that are unknown, by metric and shard, and their kinds; an environment's shard
is `model.shards.shard_of`. Environments have counters, waits, `max_environment_*` (minimum and sum of length
and running too), `max_oldest_age_ms` and a `last` of the three environment gauges.

`message_lives` has a row per message that ended (`model.lives`), in the order of queue and end. Skip indexes
find a row by its id or key. `life_ledger` and `life_losses` are the accounts of the audit of lives.
`message_log` has the same rows with payloads and headers, of queues that keep a log (`model.logged`). Each
row says until when it is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from weir.model.durations import HOUR_MS, MINUTE_MS, SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One resolution of a metric: a table of buckets of one width."""

    table: str
    step_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSet:
    """The three resolutions of one subject and the columns that name the subject."""

    dimensions: tuple[str, ...]
    tiers: tuple[Tier, Tier, Tier]


class GapKind(StrEnum):
    """Why a span is unknown."""

    DROPPED = "dropped"
    """Redis dropped events before they were read."""
    SWITCHED_OFF = "switched_off"
    """Somebody switched metrics off."""
    UNREADABLE = "unreadable"
    """A forced rebuild found files of the archive damaged or gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRetention:
    """For how many days the 5-second, minute and hour tiers keep their rows."""

    fine_days: int = 2
    minute_days: int = 31
    hour_days: int = 400

    @property
    def by_step(self) -> tuple[int, int, int]:
        return self.fine_days, self.minute_days, self.hour_days


STEPS_MS = {"5s": 5 * SECOND_MS, "1m": MINUTE_MS, "1h": HOUR_MS}
"""The width of a bucket in each tier."""


def tier_set(stem: str, *dimensions: str) -> TierSet:
    first, second, third = (Tier(table=f"{stem}_{name}", step_ms=STEPS_MS[name]) for name in STEPS_MS)
    return TierSet(dimensions=dimensions, tiers=(first, second, third))


QUEUES = tier_set("queue_metrics", "organization", "project", "environment", "queue")
ENVIRONMENTS = tier_set("environment_metrics", "organization", "project", "environment")
WORKERS = tier_set("worker_metrics", "role", "hostname", "worker_id", "pid")
WORKER_LAGS = tier_set("worker_lag_metrics", "worker_id", "organization", "project", "environment", "queue")

BUCKET_MS = STEPS_MS["5s"]
"""The width of a landing row's bucket: that of the finest tier."""

LIVES = "message_lives"
LIVES_KEPT_DAYS = 30
LOG = "message_log"
LIFE_LEDGER = "life_ledger"
LIFE_LOSSES = "life_losses"
LEDGER = "queue_ledger"
LOSSES = "queue_losses"
OFFSETS = "ingest_offsets"
GAPS = "metric_gaps"
REJECTS = "metric_rejects"
AUDITS = "metric_audits"
QUEUE_DRIFT = "queue_drift"
ENVIRONMENT_DRIFT = "environment_drift"

DEDUPLICATION_WINDOW = 10_000
"""How many past inserts every table remembers by token; a test compares it with the migrations."""
GRANULE_ROWS = 1_024
"""A window reads whole granules of a tier, and building their sketches costs most. With ClickHouse's 8,192
rows, half an hour of an environment took 33 ms of processor time instead of 11 (0014)."""
