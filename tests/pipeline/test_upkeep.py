"""The archive's upkeep: old hours go, but never from under someone who reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipeline.test_archive import HOUR, counted, events, write

from weir.errors import Conflict
from weir.model.durations import DAY_MS, HOUR_MS
from weir.pipeline import compaction
from weir.pipeline.archive import Archive
from weir.pipeline.compaction import compact
from weir.pipeline.definition import DEFINITIONS, QUEUE_METRIC
from weir.pipeline.upkeep import ARCHIVE_LEASE, Upkeep, UpkeepOptions, archive_lease
from weir.telemetry.store import StreamStore

HOURS = 5
KEEP_DAYS = 3
NOW_MS = HOUR + KEEP_DAYS * DAY_MS + 2 * HOUR_MS
"""Of the hours from `HOUR` on, the first two were over more than `KEEP_DAYS` ago."""


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(str(tmp_path / "archive"))
    for number in range(HOURS):
        table = events(number + 1, at_ms=HOUR + number * HOUR_MS)
        write(archive, f"t{number}", table, (0, f"{number}-0", f"{number + 1}-0"))
    return archive


@pytest.fixture
def store(streams_url: str) -> Iterator[StreamStore]:
    store = StreamStore(streams_url)
    yield store
    store.close()


def upkeep(tmp_path: Path, streams_url: str, *, keep_days: int) -> Upkeep:
    return Upkeep(
        UpkeepOptions(
            archive=str(tmp_path / "archive"),
            redis_url=streams_url,
            definitions=DEFINITIONS,
            keep_days=keep_days,
        )
    )


def test_hours_older_than_the_setting_go_with_their_folders(
    archive: Archive, tmp_path: Path, streams_url: str
) -> None:
    upkeep(tmp_path, streams_url, keep_days=KEEP_DAYS).run_once(now_ms=NOW_MS)
    assert archive.hours("queue") == [HOUR + number * HOUR_MS for number in range(2, HOURS)]
    assert len(list((tmp_path / "archive" / "metric=queue").iterdir())) == HOURS - 2


def test_zero_days_keep_everything(archive: Archive, tmp_path: Path, streams_url: str) -> None:
    upkeep(tmp_path, streams_url, keep_days=0).run_once(now_ms=NOW_MS + 1_000 * DAY_MS)
    assert counted(archive) == list(range(1, HOURS + 1))


def test_nothing_goes_while_another_works_on_the_archive(
    archive: Archive, tmp_path: Path, streams_url: str, store: StreamStore
) -> None:
    care = upkeep(tmp_path, streams_url, keep_days=KEEP_DAYS)
    with archive_lease(store):
        care.run_once(now_ms=NOW_MS)
        assert len(archive.hours("queue")) == HOURS
    care.run_once(now_ms=NOW_MS)
    assert len(archive.hours("queue")) == HOURS - 2


def test_a_lease_has_one_holder_who_notices_its_loss(store: StreamStore) -> None:
    with archive_lease(store) as prolong:
        prolong()
        with pytest.raises(Conflict), archive_lease(store):
            pass
        # As if it had run out while its holder slept, and another had come.
        store.unclaim(ARCHIVE_LEASE, holder=store._redis.get("weir:pipeline:lease:archive").decode())  # type: ignore[union-attr]
        assert store.claim(ARCHIVE_LEASE, holder="another", seconds=60)
        with pytest.raises(Conflict):
            prolong()
    assert not store.claim(ARCHIVE_LEASE, holder="third", seconds=60)


def test_joined_files_stay_small_enough_for_memory(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MAX_EVENTS", 4)
    for number in range(20, 32):
        write(archive, f"u{number}", events(number), (0, f"{number - 1}-0", f"{number}-0"))
    before = counted(archive)
    done = compact(archive, QUEUE_METRIC, now_ms=NOW_MS)
    assert (done.files, done.into) == (12, 3)
    of_hour = archive.files("queue", from_ms=HOUR, to_ms=HOUR + 1)
    assert max(archive.rows(file.path) for file in of_hour) == 4
    assert counted(archive) == before
    assert compact(archive, QUEUE_METRIC, now_ms=NOW_MS).files == 0
