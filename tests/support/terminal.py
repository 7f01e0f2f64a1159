"""Runs a command on a terminal, and reads what it prints there."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Sequence


def lines_on_terminal(command: Sequence[str], *, columns: int = 80) -> list[str]:
    """The lines that a command prints on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, env={**inherited, "TERM": "dumb"}):
        os.close(theirs)
        text = _read_all(ours).decode()
    os.close(ours)
    return text.splitlines()


def _read_all(handle: int) -> bytes:
    chunks: list[bytes] = []
    while True:
        try:
            chunk = os.read(handle, 65_536)
        except OSError:  # This is how Linux says that the other side was closed.
            chunk = b""
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
