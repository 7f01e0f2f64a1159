"""Chooses loopback ports: the one that is set, the one of the last start, or a free one."""

from __future__ import annotations

import random
import socket
from contextlib import closing

from weir.errors import Misconfigured

HOST = "127.0.0.1"
# Below the ports that Linux gives to outgoing connections, each of which would take a port that was free
# a moment ago.
_PORTS = range(20_000, 32_768)
_TRIES = 100


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that was free a moment ago."""
    for port in random.sample(_PORTS, _TRIES):
        if is_free(port):
            return port
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def choose_port(wanted: int | None, *, server: str, before: int | None = None) -> int:
    """`wanted`, which must be free; without it the port used `before` if that is free, or any free port."""
    if wanted:
        if not is_free(wanted):
            raise Misconfigured(
                f"port {wanted} for {server} is in use; stop the program that listens there, "
                f"or set `WEIR_EMBEDDED__{server.upper()}_PORT` to another one (0 picks a free one)"
            )
        return wanted
    if before and is_free(before):
        return before
    return free_port()
