"""A real pgbouncer in transaction mode before a PostgreSQL: each transaction may get another session."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from dev.tools import pgbouncer, pgbouncer_libraries
from support.waiting import wait_until

_SETTINGS = """\
[databases]
* = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = 500
server_idle_timeout = 600
{more}
"""


@contextmanager
def pooled_url(url: str, *, sessions: int = 3, more: str = "") -> Iterator[str]:
    """The URL of the same database behind a pgbouncer that has `sessions` sessions for all its clients."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    listen = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        # pgbouncer refuses to run as root.
        Path(folder).chmod(0o755)
        settings = Path(folder) / "pgbouncer.ini"
        settings.write_text(
            _SETTINGS.format(
                host=parts.hostname, port=parts.port, user=parts.username, password=parts.password,
                listen=listen, sessions=sessions, more=more,
            )
        )  # fmt: skip
        with _started(settings):
            pooled = parts._replace(netloc=f"{parts.username}@127.0.0.1:{listen}")
            wait_until(lambda: _answers(urlunsplit(pooled)), what="pgbouncer answers")
            yield urlunsplit(pooled)


@contextmanager
def _started(settings: Path) -> Iterator[None]:
    command = [str(pgbouncer()), "-q", str(settings)]
    if os.geteuid() == 0:
        command[1:1] = ["-u", "nobody"]
        settings.chmod(0o644)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(pgbouncer_libraries())}
    with (settings.parent / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=2):
        return True
    return False


def _free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
