"""Tokens whose rows never reached disk are forgotten before the engine opens its directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.embedded.chdb.repair import repair_deduplication_logs


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "store" / "abc" / "abcdef"
    (folder / "deduplication_logs").mkdir(parents=True)
    return folder


def write_log(table: Path, *lines: str) -> Path:
    log = table / "deduplication_logs" / "deduplication_log_1.txt"
    log.write_text("".join(lines))
    return log


def test_a_token_without_its_part_is_forgotten(tmp_path: Path, table: Path) -> None:
    (table / "all_1_1_0").mkdir()
    log = write_log(table, "1\tall_1_1_0\tone\n", "1\tall_2_2_0\ttwo\n")
    assert repair_deduplication_logs(tmp_path) == 1
    assert log.read_text() == "1\tall_1_1_0\tone\n"


def test_a_merged_part_covers_the_blocks_it_was_made_from(tmp_path: Path, table: Path) -> None:
    (table / "202611_1_5_2").mkdir()
    log = write_log(table, "1\t202611_1_1_0\tone\n", "1\t202611_5_5_0\ttwo\n", "1\t202612_5_5_0\tthree\n")
    assert repair_deduplication_logs(tmp_path) == 1
    assert log.read_text() == "1\t202611_1_1_0\tone\n1\t202611_5_5_0\ttwo\n"


def test_a_torn_line_is_dropped(tmp_path: Path, table: Path) -> None:
    (table / "all_1_1_0").mkdir()
    log = write_log(table, "1\tall_1_1_0\tone\n", "1\tall_1_1_0\ttw")
    assert repair_deduplication_logs(tmp_path) == 1
    assert log.read_text() == "1\tall_1_1_0\tone\n"


def test_a_removal_stays(tmp_path: Path, table: Path) -> None:
    write_log(table, "2\tall_9_9_0\tone\n")
    assert repair_deduplication_logs(tmp_path) == 0


def test_a_temporary_part_does_not_count(tmp_path: Path, table: Path) -> None:
    (table / "tmp_insert_all_1_1_0").mkdir()
    write_log(table, "1\tall_1_1_0\tone\n")
    assert repair_deduplication_logs(tmp_path) == 1


def test_a_new_directory_needs_no_repair(tmp_path: Path) -> None:
    assert repair_deduplication_logs(tmp_path / "nothing") == 0
