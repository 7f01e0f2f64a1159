"""The archive: every event once, in few files."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from weir.errors import Conflict
from weir.model.durations import HOUR_MS
from weir.pipeline.archive import Archive, ShardRange, covered_once, within
from weir.pipeline.compaction import SETTLED_MS, compact
from weir.pipeline.definition import QUEUE_METRIC
from weir.pipeline.landing import landing_rows
from weir.telemetry.events import Aggregate, Field

OF_THE_FIRST_LAYOUT = Path(__file__).parent / "golden" / "archive_v1"
"""A file that was written before archive files said their version."""
HOUR = 500_000 * HOUR_MS
CLOSED_MS = HOUR + 2 * HOUR_MS + SETTLED_MS


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(str(tmp_path / "archive"))


def events(*ids: int, at_ms: int | None = None, shard: int = 0) -> pa.Table:
    names = {name: pa.array([name] * len(ids)) for name in QUEUE_METRIC.kind.dimensions}
    return pa.table(
        {
            **names,
            "stream_ms": pa.array(ids, pa.uint64()),
            "stream_sequence": pa.array([0] * len(ids), pa.uint64()),
            "at_ms": pa.array([at_ms if at_ms is not None else HOUR + one for one in ids], pa.uint64()),
            "shard": pa.array([shard] * len(ids), pa.uint16()),
        }
    )


def write(archive: Archive, token: str, table: pa.Table, *ranges: ShardRange) -> None:
    archive.write(QUEUE_METRIC, table, token=token, ranges=ranges)


def counted(archive: Archive) -> list[int]:
    """The ids that a rebuild would count."""
    files = archive.files("queue", from_ms=0, to_ms=2**62)
    found: list[int] = []
    for hour in sorted({file.hour_ms for file in files}):
        ranges = [(file.path, archive.ranges(file.path)) for file in files if file.hour_ms == hour]
        for path, mine in covered_once(ranges):
            found += within(archive.read(path, QUEUE_METRIC.kind), mine)["stream_ms"].to_pylist()
    return sorted(found)


def test_a_batch_over_two_hours_has_a_file_in_each(archive: Archive) -> None:
    table = pa.concat_tables([events(1, 2), events(3, at_ms=HOUR + HOUR_MS)])
    write(archive, "a", table, (0, "0-0", "3-0"))
    files = archive.files("queue", from_ms=0, to_ms=2**62)
    assert [file.hour_ms for file in files] == [HOUR, HOUR + HOUR_MS]
    assert counted(archive) == [1, 2, 3]
    assert archive.files("queue", from_ms=HOUR + HOUR_MS, to_ms=2**62) == files[1:]
    assert archive.files("queue", from_ms=HOUR, to_ms=HOUR + 1) == files[:1]


def test_writing_a_batch_again_changes_nothing(archive: Archive) -> None:
    for _ in range(2):
        write(archive, "a", events(1, 2), (0, "0-0", "2-0"))
    assert counted(archive) == [1, 2]


def test_batches_that_overlap_count_once(archive: Archive) -> None:
    write(archive, "a", events(1, 2, 3), (0, "0-0", "3-0"))
    write(archive, "b", events(1, 2, 3, 4, 5), (0, "0-0", "5-0"))
    write(archive, "c", events(3, 4, shard=1), (1, "2-0", "4-0"))
    assert counted(archive) == [1, 2, 3, 3, 4, 4, 5]


def test_closed_hours_are_joined_without_loss(archive: Archive, tmp_path: Path) -> None:
    for number in range(1, 31):
        write(archive, f"t{number}", events(number), (0, f"{number - 1}-0", f"{number}-0"))
    done = compact(archive, QUEUE_METRIC, now_ms=CLOSED_MS)
    assert (done.files, done.into) == (30, 1)
    assert len(list((tmp_path / "archive").rglob("*.parquet"))) == 1
    assert counted(archive) == list(range(1, 31))
    assert compact(archive, QUEUE_METRIC, now_ms=CLOSED_MS).files == 0


def test_an_hour_that_is_not_over_is_left_alone(archive: Archive) -> None:
    for number in range(1, 31):
        write(archive, f"t{number}", events(number), (0, f"{number - 1}-0", f"{number}-0"))
    assert compact(archive, QUEUE_METRIC, now_ms=HOUR + HOUR_MS).files == 0


def test_a_join_that_was_killed_before_it_removed_the_parts_counts_once(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 21):
        write(archive, f"t{number}", events(number), (0, f"{number - 1}-0", f"{number}-0"))
    with monkeypatch.context() as patch:
        patch.setattr(Archive, "remove", lambda self, paths: None)
        compact(archive, QUEUE_METRIC, now_ms=CLOSED_MS)
    assert len(archive.files("queue", from_ms=0, to_ms=2**62)) == 21
    assert counted(archive) == list(range(1, 21))
    compact(archive, QUEUE_METRIC, now_ms=CLOSED_MS)
    assert counted(archive) == list(range(1, 21))
    assert len(archive.files("queue", from_ms=0, to_ms=2**62)) == 1


@pytest.fixture
def first(tmp_path: Path) -> Archive:
    """An archive whose one file is of the first layout."""
    shutil.copytree(OF_THE_FIRST_LAYOUT, tmp_path / "archive")
    return Archive(str(tmp_path / "archive"))


def test_a_file_that_says_no_version_is_read_and_joined_with_newer_ones(first: Archive) -> None:
    moved = Field(name="moved", width=4, aggregates=(Aggregate.SUM,), doc="")
    kind = replace(
        QUEUE_METRIC.kind, earlier=(QUEUE_METRIC.kind.fields,), fields=(*QUEUE_METRIC.kind.fields, moved)
    )
    grown = replace(QUEUE_METRIC, kind=kind)
    (old,) = first.files("queue", from_ms=0, to_ms=2**62)
    before = first.read(old.path, kind)
    assert before["moved"].to_pylist() == [0] * 26
    for number in range(12):
        mine = before.slice(number, 1)
        last = f"{mine['stream_ms'][0]}-{mine['stream_sequence'][0]}"
        first.write(
            grown,
            mine.set_column(mine.column_names.index("shard"), "shard", pa.array([3], pa.uint16())),
            token=f"new-{number}",
            ranges=[(3, f"0-{number}", last)],
        )
    done = compact(first, grown, now_ms=old.hour_ms + 3 * HOUR_MS)
    assert (done.files, done.into) == (13, 1)
    (joined,) = first.files("queue", from_ms=0, to_ms=2**62)
    rows = landing_rows(grown, first.read(joined.path, kind))
    assert sum(rows["enqueued"].to_pylist()) >= 30
    assert sum(rows["moved"].to_pylist()) == 0


def test_a_file_of_a_newer_version_is_refused(archive: Archive) -> None:
    known = QUEUE_METRIC.kind
    newer = replace(known, earlier=(*known.earlier, known.fields))
    archive.write(replace(QUEUE_METRIC, kind=newer), events(1), token="t", ranges=[(0, "0-0", "1-0")])
    (file,) = archive.files("queue", from_ms=0, to_ms=2**62)
    with pytest.raises(Conflict, match=rf"events of version {newer.version}.*start a newer Weir"):
        archive.read(file.path, known)
