"""Chooses loopback ports, all different: those that are set, those of the last start, or free ones."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Mapping
from contextlib import closing

from weir.errors import Misconfigured

HOST = "127.0.0.1"
# Below the ports that Linux gives to outgoing connections, each of which would take a port that was free
# a moment ago.
_PORTS = range(20_000, 32_768)


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port(*, other_than: Collection[int] = ()) -> int:
    """A port that was free a moment ago, and none of `other_than`."""
    for port in random.sample(_PORTS, len(_PORTS)):
        if port not in other_than and is_free(port):
            return port
    raise Misconfigured(
        f"every port from {_PORTS.start} to {_PORTS.stop - 1} is in use; end a program that listens there"
    )


def choose_ports(
    wanted: Mapping[str, int | None], *, before: Mapping[str, int], reserved: Collection[int] = ()
) -> dict[str, int]:
    """A port per server: the `wanted` one, which must be free; else the one used `before`, or a free one.

    No two servers get the same port. None gets a `reserved` port, unless it is wanted.
    """
    chosen: dict[str, int] = {}
    # Those that are wanted come first, so that no other server takes them.
    for server, port in wanted.items():
        if port:
            _require_usable(port, server, chosen)
            chosen[server] = port
    for server in wanted:
        if server not in chosen:
            others = {*reserved, *chosen.values()}
            kept = before.get(server)
            if not kept or kept in others or not is_free(kept):
                kept = free_port(other_than=others)
            chosen[server] = kept
    return chosen


def _require_usable(port: int, server: str, chosen: Mapping[str, int]) -> None:
    setting = f"`WEIR_EMBEDDED__{server.upper()}_PORT`"
    for other, taken in chosen.items():
        if taken == port:
            raise Misconfigured(
                f"port {port} is set for {other} and for {server}; "
                f"set {setting} to another one (0 picks a free one)"
            )
    if not is_free(port):
        raise Misconfigured(
            f"port {port} for {server} is in use; stop the program that listens there, "
            f"or set {setting} to another one (0 picks a free one)"
        )
