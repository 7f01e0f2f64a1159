"""The past goes into the archive once, and claims nothing of what really happens."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from weir.demo.backfill import write_past
from weir.demo.scenario import BILLING, Incidents, Tenant
from weir.model.durations import HOUR_MS
from weir.pipeline.archive import Archive, EncodedFile, encoded
from weir.pipeline.definition import QUEUE_METRIC
from weir.pipeline.job import PipelineOptions

NOW_MS = 1_790_000_000_000
SMALL = Tenant(environment=BILLING.environment, queues=BILLING.queues[:1])


@pytest.fixture
def options(tmp_path: Path, redis_url: str, clickhouse_url: str) -> PipelineOptions:
    return PipelineOptions(
        redis_url=redis_url,
        clickhouse_url=clickhouse_url,
        checkpoint=str(tmp_path / "checkpoint"),
        archive=str(tmp_path / "archive"),
        shards=4,
    )


def test_an_interrupted_past_is_written_anew_and_ends_where_the_present_begins(
    options: PipelineOptions,
) -> None:
    archive = Archive(str(options.archive))
    stray = pa.table({"at_ms": pa.array([1], pa.uint64())})
    content = encoded(QUEUE_METRIC, stray, ranges=[])
    archive.put("queue", EncodedFile(hour_ms=0, name="stray.parquet", content=content))
    assert archive.hours(QUEUE_METRIC.name) == [0]
    from_ms = write_past(options, Incidents(), now_ms=NOW_MS, tenants=[SMALL])
    hours = archive.hours(QUEUE_METRIC.name)
    assert hours[0] == from_ms // HOUR_MS * HOUR_MS
    last = archive.files(QUEUE_METRIC.name, from_ms=hours[-1], to_ms=NOW_MS + 1)
    ends = {until for file in last for _, _, until in archive.ranges(file.path)}
    assert ends == {f"{NOW_MS - 1}-0"}
