"""A blocking connection to one Redis: a socket and hiredis, and nothing in between.

The driver's own connection spends more time in Python on a command than Redis spends on a short script.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from hiredis import pack_command
from redis import exceptions

from weir.broker.plain_protocol import PENDING, greeting, new_reader, socket_address

_READ_BYTES = 1 << 16


class _SelfClosingSocket(socket.socket):
    """Closes itself without a warning: a client may be dropped without being closed, as with the driver."""

    def __del__(self) -> None:
        self.close()


class PlainConnection:
    """Carries one command at a time. It has the methods of the driver's connections that Weir uses."""

    def __init__(self, address: Mapping[str, Any], *, answer_s: float, connect_s: float) -> None:
        self._address = address
        self._answer_s = answer_s
        self._connect_s = connect_s
        self._socket: socket.socket | None = None
        self._reader = new_reader()
        self.pid = os.getpid()

    def send_packed_command(self, parts: Sequence[bytes]) -> None:
        opened = self._open_socket()
        try:
            for part in parts:
                opened.sendall(part)
        except OSError as error:
            raise self._disconnect_after(error) from error

    def read_response(self) -> Any:
        """The next reply. Raises the driver's error for an error, or if no reply comes in time."""
        opened, reader = self._open_socket(), self._reader
        while (reply := reader.gets()) is PENDING:
            try:
                data = opened.recv(_READ_BYTES)
            except OSError as error:
                raise self._disconnect_after(error) from error
            if not data:
                self.disconnect()
                raise exceptions.ConnectionError("Redis closed the connection")
            reader.feed(data)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def can_read(self, timeout_s: float) -> bool:
        """Whether something comes within this time."""
        if self._reader.has_data():
            return True
        waiting = select.poll()
        waiting.register(self._open_socket(), select.POLLIN)
        return bool(waiting.poll(timeout_s * 1_000))

    def disconnect(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
            self._socket = None

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            self._socket = self._connect()
            self._greet()
        return self._socket

    def _connect(self) -> socket.socket:
        self._reader = new_reader()
        try:
            connected = socket.create_connection(socket_address(self._address), timeout=self._connect_s)
        except OSError as error:
            raise self._disconnect_after(error) from error
        opened = _SelfClosingSocket(fileno=connected.detach())
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel keeps the timeouts: Python's own would cost one more system call per read and write.
        span = struct.pack("ll", *divmod(round(self._answer_s * 1_000_000), 1_000_000))
        opened.settimeout(None)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, span)
        return opened

    def _greet(self) -> None:
        """Authenticate, and select the database."""
        try:
            for command in greeting(self._address):
                self.send_packed_command((pack_command(command),))
                self.read_response()
        except BaseException:
            self.disconnect()
            raise

    def _disconnect_after(self, error: OSError) -> exceptions.RedisError:
        """The driver's error for an error of the socket. Disconnects, because an old reply may still come."""
        self.disconnect()
        if isinstance(error, BlockingIOError | TimeoutError):
            return exceptions.TimeoutError("Redis did not answer in time")
        return exceptions.ConnectionError(str(error))
