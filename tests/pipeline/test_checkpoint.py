"""Repairing a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.errors import InvalidInput, NotFound
from weir.pipeline.checkpoint import broken_files, repair_checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for journal in ("offsets", "commits"):
        (tmp_path / journal).mkdir()
        for number in range(3):
            (tmp_path / journal / str(number)).write_text('v1\n{"a":1}\n{"b":2}')
    return tmp_path


def test_a_whole_checkpoint_is_left_alone(checkpoint: Path) -> None:
    assert repair_checkpoint(checkpoint) == []
    assert (checkpoint / "offsets" / "2").exists()


@pytest.mark.parametrize("content", ["", "v1", "v1\n", 'v1\n{"a":1}\n{"b"'])
def test_an_incomplete_last_entry_goes_with_its_checksum(checkpoint: Path, content: str) -> None:
    (checkpoint / "offsets" / "3").write_text(content)
    (checkpoint / "offsets" / ".3.crc").write_text("x")
    assert broken_files(checkpoint) == ["offsets/3", "offsets/.3.crc"]
    assert repair_checkpoint(checkpoint) == ["offsets/3", "offsets/.3.crc"]
    assert not (checkpoint / "offsets" / ".3.crc").exists()
    assert repair_checkpoint(checkpoint) == []


def test_a_checksum_and_a_draft_without_their_file_go(checkpoint: Path) -> None:
    (checkpoint / "commits" / ".3.crc").write_text("x")
    (checkpoint / "commits" / ".3.abc.tmp").write_text("")
    assert sorted(repair_checkpoint(checkpoint)) == ["commits/.3.abc.tmp", "commits/.3.crc"]


def test_damage_in_the_middle_is_refused(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "1").write_text("")
    with pytest.raises(InvalidInput, match="damaged"):
        repair_checkpoint(checkpoint)


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        repair_checkpoint(tmp_path)
