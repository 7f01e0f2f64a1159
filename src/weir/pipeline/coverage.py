"""Checks that the archive holds all events of a span before a rebuild replaces the span.

A rebuild deletes hours before it fills them again. If files of an hour are gone (too old, in another folder,
or the archive was switched off for a while), the hour would lose events, so the rebuild is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from weir.errors import Conflict
from weir.model.wording import amount
from weir.pipeline.archive import Archive, ArchiveFile
from weir.pipeline.definition import MetricDefinition
from weir.warehouse.connection import ClickHouseConnection

_EVENTS = """
SELECT toUnixTimestamp(toStartOfHour(bucket_start)) AS hour_s, sum(events) AS events
FROM {table:Identifier}
WHERE bucket_start >= toDateTime({from_s:UInt32}, 'UTC') AND bucket_start < toDateTime({to_s:UInt32}, 'UTC')
GROUP BY hour_s
"""


def require_coverage(
    warehouse: ClickHouseConnection,
    root: str,
    definition: MetricDefinition,
    files: Sequence[ArchiveFile],
    span_ms: tuple[int, int],
) -> None:
    """Refuse a span if some tier holds more events of one of its hours than the archive does."""
    archive = Archive(root)
    archived: Counter[int] = Counter()
    for file in files:
        archived[file.hour_ms] += archive.rows(file.path)
    for table in definition.tiers:
        for hour_ms, events in _held(warehouse, table, span_ms).items():
            if events > archived[hour_ms]:
                raise Conflict(
                    f"`{table}` holds {amount(events, 'event')} of the hour {_shown(hour_ms)}, "
                    f"the archive only {archived[hour_ms]:,}; "
                    "rebuild another span, or use `--force` to keep only those"
                )


def _held(warehouse: ClickHouseConnection, table: str, span_ms: tuple[int, int]) -> dict[int, int]:
    begin, end = (at // 1_000 for at in span_ms)
    rows = warehouse.rows(_EVENTS, {"table": table, "from_s": begin, "to_s": end})
    return {row["hour_s"] * 1_000: row["events"] for row in rows}


def _shown(hour_ms: int) -> str:
    return datetime.fromtimestamp(hour_ms / 1_000, UTC).strftime("%Y-%m-%dT%H")
