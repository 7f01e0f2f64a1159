"""Spark's temporary files: in the data directory, and gone afterwards, even after a kill."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from weir.pipeline.scratch import scratch_folder, socket_folder
from weir.pipeline.session import LOCAL, SessionOptions, session_settings

HOLDER = """
import sys
from pathlib import Path
from weir.pipeline.scratch import scratch_folder
folder = scratch_folder(Path(sys.argv[1]))
(folder / "blockmgr").mkdir()
print(folder, flush=True)
sys.stdin.read()
"""


def holder(root: Path) -> tuple[subprocess.Popen[str], Path]:
    """Another process that has a folder below `root`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_goes_with_its_process_and_never_under_it(tmp_path: Path) -> None:
    alive, kept = holder(tmp_path)
    killed, left = holder(tmp_path)
    killed.kill()
    killed.communicate()
    assert left.is_dir()
    mine = scratch_folder(tmp_path)
    assert not left.exists()
    assert kept.is_dir()
    assert mine.is_dir()
    alive.communicate("")
    assert sorted(path.name for path in tmp_path.iterdir()) == [mine.name, f"{mine.name}.lock"]


def test_sockets_get_a_short_folder_where_the_path_is_long_and_it_goes_too(tmp_path: Path) -> None:
    assert socket_folder(Path("/srv/weir/pipeline")) == Path("/srv/weir/pipeline")
    root = tmp_path / ("d" * 80)
    killed, left = holder(root)
    sockets = socket_folder(left)
    assert len(str(sockets)) < 60
    killed.kill()
    killed.communicate()
    assert sockets.is_dir()
    scratch_folder(root)
    assert not sockets.exists()


def test_the_longest_path_for_sockets_is_the_longest_that_spark_takes() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        longest = Path(short) / ("d" * (60 - len(short) - 1))
        longer = Path(short) / ("d" * (61 - len(short) - 1))
        longest.mkdir()
        longer.mkdir()
        assert socket_folder(longest) == longest
        elsewhere = socket_folder(longer)
        assert elsewhere != longer
        elsewhere.rmdir()


def test_every_folder_of_the_driver_is_below_the_scratch(tmp_path: Path) -> None:
    found = session_settings(SessionOptions(), master=LOCAL, scratch=scratch_folder(tmp_path))
    assert Path(found["spark.local.dir"]).parent == tmp_path
    assert f"-Djava.io.tmpdir={found['spark.local.dir']}" in found["spark.driver.extraJavaOptions"]
    assert "spark.local.dir" not in session_settings(SessionOptions(), master=LOCAL, scratch=None)
