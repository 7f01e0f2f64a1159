"""The processes that Spark forks for Python tasks, without Spark: how they end when it hangs up."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from tempfile import TemporaryDirectory

import psutil
import pytest
from pyspark.serializers import read_int

from weir.pipeline.session import LOCAL, SessionOptions, session_settings
from weir.pipeline.worker_daemon import SHARED


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    """The daemon that the settings name, started as Spark starts it."""
    module = session_settings(SessionOptions(), master=LOCAL, scratch=None)["spark.python.daemon.module"]
    command = [sys.executable, "-m", module, "pyspark.worker"]
    environment = {**os.environ, "PYTHON_UNIX_DOMAIN_ENABLED": "true", "SPARK_REUSE_WORKER": "1"}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    # Not pytest's folder: the path of a socket has at most 107 bytes.
    with TemporaryDirectory() as folder:
        environment["PYTHON_WORKER_FACTORY_SOCK_DIR"] = folder
        with subprocess.Popen(command, env=environment, **pipes) as process:
            yield process
            process.kill()


def fork_worker(path: str) -> tuple[socket.socket, psutil.Process]:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    with connection.makefile("rb") as answer:
        return connection, psutil.Process(read_int(answer))


@pytest.mark.parametrize("sent", [b"", struct.pack("!i", 4) + b"3.1"])
def test_a_worker_that_spark_hangs_up_on_ends_without_a_word(
    daemon: subprocess.Popen[bytes], sent: bytes
) -> None:
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    assert daemon.stderr is not None
    path = daemon.stdout.read(read_int(daemon.stdout)).decode()
    connection, worker = fork_worker(path)
    connection.sendall(sent)
    connection.close()
    assert psutil.wait_procs([worker], timeout=30)[1] == []
    daemon.stdin.close()
    assert daemon.stderr.read() == b""


def test_the_daemon_has_imported_what_workers_need_and_has_no_thread(
    daemon: subprocess.Popen[bytes],
) -> None:
    """A fork takes no threads along: a lock that one of them held would never be free."""
    assert daemon.stdout is not None
    daemon.stdout.read(read_int(daemon.stdout))
    process = psutil.Process(daemon.pid)
    assert process.num_threads() == 1
    libraries = {mapped.path for mapped in process.memory_maps()}
    assert any("/hiredis/" in path for path in libraries)
    assert not any("/numpy/" in path or "/pyarrow/" in path for path in libraries)


def test_workers_use_all_that_the_daemon_imports() -> None:
    look = (
        "import sys, weir.pipeline.sink, weir.pipeline.source, pyspark.worker; print(*sys.modules, sep='\\n')"
    )
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    assert set(SHARED) <= set(found.splitlines())
