"""Frames between a worker and the processes of its tasks: four bytes with the length, then pickled data.

Both ends run the same program as the same user, so it is safe to unpickle what arrives.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from typing import Any

_HEAD = 4
MAX_FRAME = 64 << 20


def pack_frame(data: dict[str, Any]) -> bytes:
    body = pickle.dumps(data)
    if len(body) > MAX_FRAME:
        raise ValueError(f"a result of {len(body)} bytes is too large to come back from its process")
    return len(body).to_bytes(_HEAD, "big") + body


def unpack_frame(frame: bytes) -> dict[str, Any]:
    found: dict[str, Any] = pickle.loads(frame[_HEAD:])
    return found


async def read_frame(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next frame; IncompleteReadError at the end."""
    size = int.from_bytes(await reader.readexactly(_HEAD), "big")
    found: dict[str, Any] = pickle.loads(await reader.readexactly(size))
    return found


def receive_frame(sock: socket.socket) -> dict[str, Any] | None:
    """The same for code that blocks; None at the end."""
    head = _receive(sock, _HEAD)
    body = head and _receive(sock, int.from_bytes(head, "big"))
    return None if not body else pickle.loads(body)


def _receive(sock: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(size - len(parts))
        if not part:
            return b""
        parts += part
    return bytes(parts)
