"""Runs Spark's process that plans batches, and connects it to Spark before it imports anything large.

Spark waits 10 s for this connection, and no setting changes that. The imports before it take 0.3 s of
processor time, or 0.7 s from Spark's archive: on a host that leaves a process a twentieth of a core they take
longer than Spark waits, at each start again. The interpreter alone takes 0.02 s.
"""

from __future__ import annotations

import os
import runpy
import socket

MODULE = "pyspark.sql.streaming.python_streaming_source_runner"
_ADDRESS = "PYTHON_WORKER_FACTORY_SOCK_PATH"
_BUFFER = "SPARK_BUFFER_SIZE"


def main() -> None:
    """Connect, then run Spark's own module with this connection."""
    if (address := os.environ.get(_ADDRESS)) is not None:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.connect(address)
        _hand_over(connected)
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)


def _hand_over(connected: socket.socket) -> None:
    from pyspark import worker_util

    stream = connected.makefile("rwb", int(os.environ.get(_BUFFER, 65_536)))
    # Spark's module asks for its connection by this name.
    vars(worker_util)["local_connect_and_auth"] = lambda *_: (stream, connected)


if __name__ == "__main__":
    main()
