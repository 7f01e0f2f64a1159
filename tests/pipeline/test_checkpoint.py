"""A checkpoint: repairing it, and having it to oneself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from weir.errors import InvalidInput, Misconfigured, NotFound
from weir.pipeline.checkpoint import broken_files, repair_checkpoint
from weir.pipeline.ownership import owned_checkpoint


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


def test_a_second_pipeline_on_one_checkpoint_is_refused_with_its_owner(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "pipeline" / "checkpoint")
    with owned_checkpoint(checkpoint):
        refusal = rf"already runs on `file://{checkpoint}` \(process {os.getpid()} on "
        with pytest.raises(Misconfigured, match=refusal), owned_checkpoint(f"file://{checkpoint}"):
            pass
    with owned_checkpoint(checkpoint):
        pass


def test_the_checkpoint_of_a_killed_pipeline_is_taken_over(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    code = (
        "import sys, time\nfrom weir.pipeline.ownership import owned_checkpoint\n"
        "with owned_checkpoint(sys.argv[1]):\n    print('owned', flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, checkpoint], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"owned\n"
        with pytest.raises(Misconfigured, match=f"process {owner.pid} on"), owned_checkpoint(checkpoint):
            pass
        owner.kill()
        owner.wait()
    with owned_checkpoint(checkpoint):
        pass
