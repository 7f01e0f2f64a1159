"""Forks Spark's Python workers, as Spark's own daemon does; a worker that Spark hangs up on ends silently.

Spark closes the connection to a worker that was idle for a minute, and has it killed. If the kill comes late,
the worker reports the end of the connection over that same connection, and prints a `BrokenPipeError`.

After each quiet minute new workers are forked, and each imports its modules, which takes 2.6 s of processor
time. The daemon imports the modules that allow a fork afterwards, so that 1.3 s are left.
"""

from __future__ import annotations

import os
from importlib import import_module
from socket import socket

from pyspark import daemon

# Without NumPy, Arrow and modules that import them: these start threads, and a fork does not copy threads.
SHARED = (
    *("pyspark.sql", "pyspark.worker"),
    *("clickhouse_connect.driver", "psycopg", "redis.asyncio", "structlog"),
)

_serve = daemon.worker


def serve_until_abandoned(sock: socket, authenticated: bool) -> int:
    """Serve as a worker of Spark; end this process when Spark has hung up.

    Errors of a task do not come here: Spark's worker sends them to Spark.
    """
    try:
        return _serve(sock, authenticated)
    except (ConnectionError, EOFError):
        os._exit(0)


def run_daemon() -> None:
    """Fork workers until Spark closes the standard input."""
    # Without this the worker prints that it could not flush, and returns as if it had.
    os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"
    for name in SHARED:
        import_module(name)
    # The loop of the daemon calls the worker by this name.
    daemon.worker = serve_until_abandoned
    daemon.manager()


if __name__ == "__main__":
    run_daemon()
