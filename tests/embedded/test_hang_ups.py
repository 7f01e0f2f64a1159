"""Whether the client of a query has left."""

from __future__ import annotations

import os
import resource
import socket

from weir.embedded.chdb.cancel import _has_left


def test_a_client_has_left_when_it_closed_its_end_and_not_before() -> None:
    client, server = socket.socketpair()
    assert not _has_left(server)
    client.send(b"another request")
    assert not _has_left(server)
    server.recv(100)
    client.close()
    assert _has_left(server)
    server.close()
    assert _has_left(server)


def test_a_client_stays_while_more_than_a_thousand_files_are_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4_096), hard), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    client, server = socket.socketpair()
    try:
        assert server.fileno() > 1_024
        assert not _has_left(server)
    finally:
        client.close()
        server.close()
        for number in opened:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
