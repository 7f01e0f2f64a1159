"""The process that plans batches answers Spark before it imports anything large, and uses no archives."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark

from weir.pipeline import early_runner
from weir.pipeline.interpreter import write_interpreter

ARCHIVE = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
SLOW = "from pathlib import Path\nPath({fifo!r}).read_text()\nraise SystemExit('imported')\n"


def test_it_connects_before_the_large_imports_are_done(tmp_path: Path) -> None:
    fifo = tmp_path / "go on"
    os.mkfifo(fifo)
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text(SLOW.format(fifo=str(fifo)))
    python = write_interpreter(tmp_path / "python")
    # Not pytest's folder: the path of a socket has at most 107 bytes.
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen()
        listener.settimeout(60)
        environment = {
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "PYTHON_WORKER_FACTORY_SOCK_PATH": f"{folder}/socket",
        }
        command = [python, "-m", early_runner.MODULE]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            connection, _ = listener.accept()
            assert process.poll() is None
            fifo.write_text("")
            assert process.stderr is not None
            assert "imported" in process.stderr.read()
            connection.close()


def test_the_interpreter_leaves_out_sparks_archives_and_keeps_all_else(tmp_path: Path) -> None:
    python = write_interpreter(tmp_path / "a folder" / "python")
    path = os.pathsep.join([str(ARCHIVE), str(tmp_path / "mine.zip"), str(tmp_path / "with space")])
    done = subprocess.run(
        [python, "-c", "import sys; print(sys.path, sys.executable)"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(ARCHIVE) not in done.stdout
    assert str(tmp_path / "mine.zip") in done.stdout
    assert str(tmp_path / "with space") in done.stdout
    assert sys.executable in done.stdout
