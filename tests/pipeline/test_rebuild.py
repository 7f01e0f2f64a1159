"""A rebuild gives every column of every tier back as it was, whatever kinds of events there were."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.emission import Emission
from tests.pipeline.flow import Flow

from weir.errors import Conflict
from weir.model.durations import DAY_MS, MINUTE_MS
from weir.pipeline import rebuild_tasks
from weir.pipeline.archive import Archive
from weir.pipeline.compaction import MIN_FILES, SETTLED_MS, compact
from weir.pipeline.definition import DEFINITIONS, QUEUE_METRIC
from weir.pipeline.gap_losses import gaps_by_shard
from weir.pipeline.job import PipelineOptions
from weir.pipeline.rebuild import rebuild
from weir.pipeline.rebuild_tasks import FILES_PER_TASK
from weir.telemetry.codec import MetricEvent, pack
from weir.telemetry.events import QUEUE, QUEUE_COUNTERS, STREAM_FIELD, EventKind, QueueOperation
from weir.telemetry.streams import stream_key
from weir.warehouse.audit_reader import AuditReader
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.tables import GapKind

ALWAYS_MS = 4_000_000_000_000
BATCHES = 12


@pytest.fixture
def flow(options: PipelineOptions) -> Iterator[Flow]:
    flow = Flow(options)
    yield flow
    flow.close()


class AllKinds:
    """Appends events of every kind and operation, late ones, from the future, and bytes that are none."""

    def __init__(self, redis: Any, *, shards: int) -> None:
        self._redis = redis
        self._shards = shards
        self._chance = random.Random(11)
        self._totals: dict[tuple[str, ...], dict[str, int]] = {}

    def append_early(self, now_ms: int) -> None:
        """Before all others, since ids only grow: too old for any tier, too old for the finest."""
        for shard in range(self._shards):
            for number, age_ms in enumerate((500 * DAY_MS, 3 * DAY_MS, 3 * DAY_MS - 7, DAY_MS)):
                self._append(shard, self._event(shard), f"{now_ms - age_ms}-{number}")

    def append(self, count: int) -> None:
        for _ in range(count):
            shard = self._chance.randrange(self._shards)
            self._append(shard, self._event(shard), "*")
            for definition in DEFINITIONS:
                # Lives are packed by scripts alone; `test_lives` and `test_log` rebuild them.
                packed = definition is QUEUE_METRIC or definition.holds_lives
                if not packed and self._chance.random() < 0.2:
                    key = stream_key(definition.name, self._chance.randrange(self._shards))
                    self._redis.xadd(key, {STREAM_FIELD: self._other(definition.kind)})
        self._redis.xadd(stream_key("queue", 0), {STREAM_FIELD: b"junk"})

    def append_drained(self) -> None:
        """The newest event of every queue says that nothing waits and nothing runs."""
        for names in list(self._totals):
            self._append(int(names[2]), self._event(int(names[2]), names=names, length=0), "*")

    def append_future(self, now_ms: int) -> None:
        self._append(1, self._event(1), f"{now_ms + 60 * MINUTE_MS}-0")

    def _append(self, shard: int, packed: bytes, entry_id: str) -> None:
        self._redis.xadd(stream_key("queue", shard), {STREAM_FIELD: packed}, id=entry_id)

    def _event(self, shard: int, *, names: tuple[str, ...] = (), length: int | None = None) -> bytes:
        names = names or ("acme", "main", str(shard), f"queue {self._chance.randrange(4)}")
        totals = self._totals.setdefault(names, dict.fromkeys(QUEUE_COUNTERS, 0))
        counter = self._chance.choice(QUEUE_COUNTERS)
        totals[counter] += 1
        gauge = length if length is not None else self._chance.randrange(1, 1_000)
        values = {
            "operation": self._chance.randrange(len(QueueOperation)), counter: 1,
            "queue_length": gauge, "running": gauge, "environment_length": gauge, "oldest_age_ms": gauge,
            **{f"{name}_total": total for name, total in totals.items()},
        }  # fmt: skip
        waits = tuple(self._chance.randrange(100_000) for _ in range(self._chance.randrange(3)))
        return pack(QUEUE, MetricEvent(dimensions=names, values=values, samples=waits))

    def _other(self, kind: EventKind) -> bytes:
        names = tuple(f"{name} {self._chance.randrange(2)}" for name in kind.dimensions)
        values = {field.name: self._chance.randrange(50) for field in kind.fields}
        samples = tuple(self._chance.randrange(9_999) for _ in range(3)) if kind.samples else ()
        return pack(kind, MetricEvent(dimensions=names, values=values, samples=samples))


def tier_rows(warehouse: ClickHouseConnection) -> dict[str, list[dict[str, Any]]]:
    """Every column of every row of every tier, merged."""
    found = {}
    # Lives are packed by scripts alone; `test_lives` and `test_log` rebuild them.
    summed = [definition for definition in DEFINITIONS if not definition.holds_lives]
    for table in (table for definition in summed for table in definition.tiers):
        warehouse.command(f"OPTIMIZE TABLE {table} FINAL")
        columns = warehouse.rows(
            "SELECT name, type, is_in_sorting_key AS key FROM system.columns "
            "WHERE database = currentDatabase() AND table = {table:String}",
            {"table": table},
        )
        shown = ", ".join(
            # As text, because the percentiles of no samples are not numbers, and those are never equal.
            f"toString(finalizeAggregation({row['name']})) AS {row['name']}"
            if row["type"].startswith("AggregateFunction")
            else row["name"]
            for row in columns
            # The states of T-Digest depend on the order in which they are merged.
            if "TDigest" not in row["type"]
        )
        keys = ", ".join(row["name"] for row in columns if row["key"])
        found[table] = warehouse.rows(f"SELECT {shown} FROM {table} ORDER BY {keys}")
    return found


@pytest.mark.parametrize("files_per_task", [FILES_PER_TASK, 3], ids=["whole hours", "cut hours"])
@pytest.mark.parametrize("compacted", [False, True], ids=["as written", "compacted"])
def test_a_rebuild_of_all_kinds_of_events_gives_every_column_of_every_tier_back(
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
    options: PipelineOptions,
    warehouse: ClickHouseConnection,
    emission: Any,
    flow: Flow,
    compacted: bool,
    files_per_task: int,
) -> None:
    monkeypatch.setattr(rebuild_tasks, "FILES_PER_TASK", files_per_task)
    now_ms = time.time_ns() // 1_000_000
    kinds = AllKinds(emission.redis, shards=options.shards)
    kinds.append_early(now_ms)
    for _ in range(BATCHES):
        kinds.append(40)
        flow.move()
    kinds.append_drained()
    kinds.append_future(now_ms)
    flow.move()
    before = tier_rows(warehouse)
    if compacted:
        joined = compact(
            Archive(str(options.archive)), QUEUE_METRIC, now_ms=now_ms + 3 * 60 * MINUTE_MS + SETTLED_MS
        )
        assert joined.files >= MIN_FILES
    done = rebuild(spark, options, from_ms=0, to_ms=ALWAYS_MS)
    assert done.files > 1
    after = tier_rows(warehouse)
    for table, rows in before.items():
        assert rows, table
        assert len(after[table]) == len(rows), table
        for was, now in zip(rows, after[table], strict=True):
            assert {name: now[name] for name in now if now[name] != was[name]} == {}, (table, was)
    assert {row["last"]["queue_length"] for row in after["queue_metrics_1h"][-8:]} >= {0}


def queue_files(options: PipelineOptions) -> list[Path]:
    """The files of the queue metric, the largest last."""
    root = Path(str(options.archive))
    return sorted(root.glob("metric=queue/hour=*/*.parquet"), key=lambda path: path.stat().st_size)


def cut_short(path: Path) -> None:
    """The footer is gone, as after a disk that was full."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def spoil_pages(path: Path) -> None:
    """The footer is whole, and the pages before it are not."""
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 600 + content[604:])


def held(warehouse: ClickHouseConnection) -> int:
    return int(warehouse.rows("SELECT sum(events) AS events FROM queue_metrics_1h")[0]["events"])


@pytest.mark.parametrize("damage", [cut_short, spoil_pages])
def test_a_rebuild_names_a_damaged_file_and_deletes_nothing(
    spark: SparkSession,
    options: PipelineOptions,
    warehouse: ClickHouseConnection,
    emission: Emission,
    flow: Flow,
    damage: Callable[[Path], None],
) -> None:
    for _ in range(2):
        emission.emit(300)
        flow.move()
    before, damaged = held(warehouse), queue_files(options)[-1]
    damage(damaged)
    with pytest.raises(Conflict, match=f"{damaged.name}` cannot be read"):
        rebuild(spark, options, from_ms=0, to_ms=ALWAYS_MS, metrics=["queue"])
    assert held(warehouse) == before == 600


def test_a_forced_rebuild_records_the_hour_of_a_damaged_file_as_a_gap_that_explains_no_loss(
    spark: SparkSession,
    options: PipelineOptions,
    warehouse: ClickHouseConnection,
    emission: Emission,
    flow: Flow,
) -> None:
    for _ in range(2):
        emission.emit(300)
        flow.move()
    damaged = queue_files(options)[-1]
    spoil_pages(damaged)
    done = rebuild(spark, options, from_ms=0, to_ms=ALWAYS_MS, metrics=["queue"], force=True)
    gaps = AuditReader(warehouse).gaps()
    assert held(warehouse) == done.events["queue"] < 600
    assert {gap.kind for gap in gaps} == {GapKind.UNREADABLE}
    assert {gap.shard for gap in gaps} == set(range(options.shards))
    assert done.gaps == len(gaps)
    assert gaps_by_shard(gaps) == {}


def test_a_missing_file_is_noticed_although_files_that_overlap_make_up_its_number(
    spark: SparkSession,
    options: PipelineOptions,
    warehouse: ClickHouseConnection,
    emission: Emission,
    flow: Flow,
) -> None:
    for _ in range(2):
        emission.emit(300)
        flow.move()
    first, second = queue_files(options)[:2]
    second.unlink()
    for name in ("a", "b"):
        first.with_name(f"{name}.parquet").write_bytes(first.read_bytes())
    with pytest.raises(Conflict, match="the archive only"):
        rebuild(spark, options, from_ms=0, to_ms=ALWAYS_MS, metrics=["queue"])
    assert held(warehouse) == 600
