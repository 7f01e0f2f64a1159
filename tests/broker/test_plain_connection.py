"""A blocking connection to Redis that nobody closed."""

from __future__ import annotations

import gc
import os
from contextlib import suppress

from support.servers import TestServers
from weir.broker.plain_connection import PlainConnection
from weir.broker.plain_protocol import plain_address


def test_a_dropped_connection_closes_without_a_warning(servers: TestServers) -> None:
    """The collector asks its socket and itself in any order; a warning fails this test."""
    address = plain_address(servers.redis.url)
    assert address is not None
    first = PlainConnection(address, answer_s=10, connect_s=10)
    opened = first._open_socket()
    # It is younger than its socket, so the collector comes to the socket first.
    second = PlainConnection(address, answer_s=10, connect_s=10)
    second._socket, first._socket = opened, None
    loop: list[object] = [second, opened]
    loop.append(loop)
    number = opened.fileno()
    inode = os.fstat(number).st_ino
    del first, second, opened, loop
    gc.collect()
    # A thread beside the test may have taken the number for a file of its own by now.
    with suppress(OSError):
        assert os.fstat(number).st_ino != inode
