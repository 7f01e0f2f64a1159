"""Rows that are not summed: every event is one row, in stream order, known by its stream id."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.pipeline.archive import Archive
from weir.pipeline.definition import MetricDefinition
from weir.pipeline.metric_migration import make_tables
from weir.pipeline.plain_rows import plain_rows, rows_of
from weir.telemetry.codec import MetricEvent, pack
from weir.telemetry.entries import entries_of
from weir.telemetry.event_columns import decode
from weir.telemetry.events import Aggregate, EventKind, Field, TextField
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.tables import TierRetention

VISIT = MetricDefinition(
    kind=EventKind(
        name="visit",
        dimensions=("site",),
        fields=(Field(name="took_ms", width=4, aggregates=(Aggregate.SUM,)), Field(name="status", width=2)),
        texts=(TextField(name="id", max_bytes=16, binary=True), TextField(name="error", max_bytes=200)),
    ),
    plain=True,
)
START_MS = 1_700_000_000_000
EVENTS = st.lists(
    st.builds(
        MetricEvent,
        dimensions=st.tuples(st.sampled_from(["a", "b", "é"])),
        values=st.fixed_dictionaries({"took_ms": st.integers(0, 2**32 - 1), "status": st.integers(0, 999)}),
        texts=st.fixed_dictionaries(
            {"id": st.binary(max_size=16), "error": st.text(st.characters(codec="utf-8"), max_size=20)}
        ),
    ),
    min_size=1,
    max_size=20,
)


def table(events: list[MetricEvent], *, shard: int = 3, at_ms: int = START_MS) -> pa.Table:
    reply = [(b"%d-%d" % (at_ms + n, n % 3), (b"e", pack(VISIT.kind, one))) for n, one in enumerate(events)]
    columns = pa.Table.from_batches([decode(VISIT.kind, entries_of(reply)).events])
    columns = columns.append_column("at_ms", columns["stream_ms"])
    return columns.append_column("shard", pa.array([shard] * len(events), pa.uint16()))


@settings(max_examples=50, deadline=None)
@given(EVENTS)
def test_every_event_is_one_row_in_stream_order(events: list[MetricEvent]) -> None:
    rows = plain_rows(VISIT, table(events)).to_pylist()
    for row, event in zip(rows, events, strict=True):
        given = {"site": event.dimensions[0], **event.values, **event.texts}
        assert {name: row[name] for name in given} == given
    assert [int(row["last_at"].timestamp() * 1_000) for row in rows] == [
        START_MS + n for n in range(len(rows))
    ]
    assert [row["last_sequence"] for row in rows] == [n % 3 for n in range(len(rows))]
    assert {(row["shard"], row["events"], row["rebuilt"]) for row in rows} == {(3, 1, 0)}
    assert all(row["bucket_start"] == START_MS // 5_000 * 5 for row in rows)


def test_nothing_becomes_no_rows_and_a_rebuild_is_marked() -> None:
    events = table([MetricEvent(dimensions=("a",))])
    assert rows_of(VISIT, events.slice(0, 0)).num_rows == 0
    assert rows_of(VISIT, events, rebuilt=True)["rebuilt"].to_pylist() == [1]


def test_rows_come_out_of_clickhouse_and_the_archive_as_they_went_in(
    warehouse: ClickHouseConnection, tmp_path: Path
) -> None:
    now_ms = time.time_ns() // 1_000_000
    events = table(
        [
            MetricEvent(
                dimensions=("é",),
                values={"took_ms": n, "status": 200},
                texts={"id": bytes([n]) * 16, "error": f"warum? {n}"},
            )
            for n in range(5)
        ],
        at_ms=now_ms,
    )
    make_tables(warehouse, [VISIT], TierRetention())
    archive = Archive(str(tmp_path))
    archive.write(VISIT, events, token="t", ranges=[(3, "0-0", f"{now_ms + 9}-0")])
    (file,) = archive.files("visit", from_ms=0, to_ms=2**62)
    for _ in range(2):
        warehouse.insert(VISIT.landing, rows_of(VISIT, archive.read(file.path, VISIT.kind)), token="t")
    rows = warehouse.rows(
        "SELECT site, took_ms, status, hex(id) AS id, error, "
        "toUnixTimestamp64Milli(stream_at) AS ms, stream_sequence, shard FROM visit_rows ORDER BY ms"
    )
    assert rows == [
        {
            "site": "é", "took_ms": n, "status": 200, "id": f"{n:02X}" * 16, "error": f"warum? {n}",
            "ms": now_ms + n, "stream_sequence": n % 3, "shard": 3,
        }
        for n in range(5)
    ]  # fmt: skip
    (landed,) = warehouse.rows("SELECT metric, shard, events FROM ingest_offsets")
    assert landed == {"metric": "visit", "shard": 3, "events": 5}
