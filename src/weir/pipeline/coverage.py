"""Reads the files of a rebuild to their ends, and tells which hours would lose events.

A rebuild deletes hours before it fills them again. If files of an hour are damaged or gone (too old, in
another folder, or the archive was switched off for a while), the hour would lose events, so the rebuild is
refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby

import pyarrow as pa
from pyspark.sql import SparkSession

from weir.errors import Conflict
from weir.model.durations import HOUR_MS
from weir.model.wording import amount
from weir.pipeline.archive import Archive, ArchiveFile, ShardRange, covered_once, within
from weir.pipeline.definition import MetricDefinition
from weir.pipeline.leases import Prolong
from weir.pipeline.rebuild_tasks import RebuildTask, SizedPiece, rebuild_tasks
from weir.telemetry.events import EventKind
from weir.telemetry.stream_ids import parse_id
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.ingest import GapRow
from weir.warehouse.tables import GapKind

EVENT_BYTES = 128
"""Bytes of a file that count as one event. Only events of the log take more, so this bounds their tasks."""
TASKS_PER_ROUND = 64
"""Tasks that Spark runs before the pause and the lease are checked again."""
_TASKS_SCHEMA = "pieces string"
_FOUND_SCHEMA = "path string, events long, problem string"
_EVENTS = """
SELECT toUnixTimestamp(toStartOfHour(bucket_start)) AS hour_s, sum(events) AS events
FROM {table:Identifier}
WHERE bucket_start >= toDateTime({from_s:UInt32}, 'UTC') AND bucket_start < toDateTime({to_s:UInt32}, 'UTC')
GROUP BY hour_s
"""
# pyarrow tells damage in any of these ways; a column that is not there is a `KeyError`.
_DAMAGE = (OSError, ValueError, KeyError, pa.ArrowException, Conflict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSurvey:
    """What the archive holds of a span, after each of its files was read to its end."""

    tasks: Sequence[RebuildTask]
    """How the readable files are divided."""
    events: Mapping[int, int]
    """Events by hour. Events that two files hold count once."""
    damaged: Mapping[ArchiveFile, str]
    """Why files cannot be read."""


def survey(
    spark: SparkSession,
    root: str,
    definition: MetricDefinition,
    files: Sequence[ArchiveFile],
    *,
    prolong: Prolong,
) -> ArchiveSurvey:
    """Read all these files; events of a damaged file are taken from files that overlap with it."""
    archive, damaged = Archive(root), dict[str, str]()
    while True:
        hours = list(_hours(archive, [file for file in files if file.path not in damaged], damaged))
        tasks = list(rebuild_tasks(hours, mergeable=not definition.plain))
        known = len(damaged)
        counts: dict[str, int] = {}
        for start in range(0, len(tasks), TASKS_PER_ROUND):
            prolong()
            for path, events, problem in _read(
                spark, root, definition.kind, tasks[start : start + TASKS_PER_ROUND]
            ):
                counts[path] = events
                if problem:
                    damaged[path] = problem
        if len(damaged) == known:
            break
    held = Counter[int]()
    for file in files:
        held[file.hour_ms] += counts.get(file.path, 0)
    return ArchiveSurvey(
        tasks=tasks, events=held, damaged={file: damaged[file.path] for file in files if file.path in damaged}
    )


def require_coverage(
    warehouse: ClickHouseConnection,
    definition: MetricDefinition,
    found: ArchiveSurvey,
    span_ms: tuple[int, int],
) -> None:
    """Refuse a span if a file cannot be read, or some tier holds more of an hour than the archive does."""
    for file, problem in found.damaged.items():
        others = f", and {len(found.damaged) - 1} more cannot be" if len(found.damaged) > 1 else ""
        raise Conflict(
            f"the archive file `{file.path}` cannot be read ({problem}){others}; put it back from a copy, "
            "rebuild another span, or use `--force` to rebuild without it and to record its hour as a gap"
        )
    for table, hour_ms, events in _short(warehouse, definition, found, span_ms):
        raise Conflict(
            f"`{table}` holds {amount(events, 'event')} of the hour {_shown(hour_ms)}, "
            f"the archive only {found.events.get(hour_ms, 0):,}; "
            "rebuild another span, or use `--force` to keep only those and to record the hour as a gap"
        )


def gaps_of(
    warehouse: ClickHouseConnection,
    definition: MetricDefinition,
    found: ArchiveSurvey,
    span_ms: tuple[int, int],
    *,
    shards: int,
) -> list[GapRow]:
    """The hours that a rebuild cannot give back whole, as gaps; ask before the span is cleared."""
    held = Counter({file.hour_ms: 0 for file in found.damaged})
    for _, hour_ms, events in _short(warehouse, definition, found, span_ms):
        held[hour_ms] = max(held[hour_ms], events)
    return [
        GapRow(
            metric=definition.name,
            shard=shard,
            from_id=f"{hour_ms}-0",
            to_id=f"{hour_ms + HOUR_MS - 1}-0",
            reason="rebuilt from an archive that lacks events of the hour",
            # The tiers do not say in which shards the events were.
            entries=None,
            kind=GapKind.UNREADABLE,
        )
        for hour_ms in sorted(held)
        for shard in range(shards)
    ]


def _hours(
    archive: Archive, files: Iterable[ArchiveFile], damaged: dict[str, str]
) -> Iterator[list[SizedPiece]]:
    """The files of each hour with the ranges that they contribute, because files of one hour may overlap.

    A file whose footer cannot be read is noted as damaged and left out.
    """
    for _, grouped in groupby(files, key=lambda file: file.folder):
        ranges: list[tuple[str, list[ShardRange]]] = []
        weights: dict[str, int] = {}
        for file in grouped:
            try:
                ranges.append((file.path, archive.ranges(file.path)))
                # Payloads make the events of the log large.
                weights[file.path] = max(archive.rows(file.path), file.size // EVENT_BYTES)
            except _DAMAGE as error:
                damaged[file.path] = _why(error)
                ranges = [one for one in ranges if one[0] != file.path]
        pieces = [(piece, weights[piece[0]]) for piece in covered_once(ranges) if piece[1]]
        # In stream order: tasks that share an hour then share few buckets of it.
        yield sorted(pieces, key=lambda sized: min(parse_id(after) for _, after, _ in sized[0][1]))


def _read(
    spark: SparkSession, root: str, kind: EventKind, tasks: Sequence[RebuildTask]
) -> Iterator[tuple[str, int, str]]:
    """Each file of these tasks with the events that it contributes, or with what is wrong with it."""
    frame = spark.createDataFrame([(json.dumps(one.pieces),) for one in tasks], _TASKS_SCHEMA)
    read = partial(_examined, root=root, kind=kind)
    for row in frame.repartition(len(tasks)).mapInArrow(read, _FOUND_SCHEMA).collect():
        yield row["path"], row["events"], row["problem"]


def _examined(batches: Iterable[pa.RecordBatch], root: str, kind: EventKind) -> Iterator[pa.RecordBatch]:
    archive = Archive(root)
    for batch in batches:
        for text in batch["pieces"].to_pylist():
            found = [(path, *_events_in(archive, kind, path, ranges)) for path, ranges in json.loads(text)]
            paths, events, problems = zip(*found, strict=True)
            yield pa.record_batch(
                {
                    "path": pa.array(paths, pa.string()),
                    "events": pa.array(events, pa.int64()),
                    "problem": pa.array(problems, pa.string()),
                }
            )


def _events_in(archive: Archive, kind: EventKind, path: str, ranges: list[ShardRange]) -> tuple[int, str]:
    try:
        return within(archive.read(path, kind), ranges).num_rows, ""
    except _DAMAGE as error:
        return 0, _why(error)


def _why(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _short(
    warehouse: ClickHouseConnection,
    definition: MetricDefinition,
    found: ArchiveSurvey,
    span_ms: tuple[int, int],
) -> Iterator[tuple[str, int, int]]:
    """Each tier and hour with more events in the tier than in the archive, and how many the tier holds."""
    for table in definition.tiers:
        for hour_ms, events in _held(warehouse, table, span_ms).items():
            if events > found.events.get(hour_ms, 0):
                yield table, hour_ms, events


def _held(warehouse: ClickHouseConnection, table: str, span_ms: tuple[int, int]) -> dict[int, int]:
    begin, end = (at // 1_000 for at in span_ms)
    rows = warehouse.rows(_EVENTS, {"table": table, "from_s": begin, "to_s": end})
    return {row["hour_s"] * 1_000: row["events"] for row in rows}


def _shown(hour_ms: int) -> str:
    return datetime.fromtimestamp(hour_ms / 1_000, UTC).strftime("%Y-%m-%dT%H")
