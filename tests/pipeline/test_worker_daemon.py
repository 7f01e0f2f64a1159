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
