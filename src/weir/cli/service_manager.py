"""Tells the service manager (systemd) that a process is ready, that it is stopping, and that it is alive.

The messages are those of `sd_notify`: lines in a datagram to the socket that `NOTIFY_SOCKET` names. Without
that variable nothing is sent.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_SOCKET = "NOTIFY_SOCKET"
_SEND_S = 1.0
"""A service manager that does not read holds up the process for no longer than this."""
_PINGS_PER_DEADLINE = 3


def tell_ready() -> None:
    _tell("READY=1")


def tell_stopping() -> None:
    _tell("STOPPING=1")


def ping_period_s() -> float | None:
    """Seconds between two pings to the service manager; None if it expects none from this process."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        deadline_us = int(os.environ.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return None
    return deadline_us / 1e6 / _PINGS_PER_DEADLINE if deadline_us > 0 else None


async def ping_from_loop() -> None:
    """Ping until cancelled. A blocked event loop does not ping, so that the service manager notices."""
    period_s = ping_period_s()
    while period_s is not None:
        _tell("WATCHDOG=1")
        await asyncio.sleep(period_s)


@contextmanager
def pinging(is_alive: Callable[[], bool]) -> Iterator[None]:
    """Ping from a thread while the block runs, each time that `is_alive` says yes; none while it hangs."""
    period_s, ended = ping_period_s(), threading.Event()
    if period_s is None:
        yield
        return

    def ping() -> None:
        while True:
            if is_alive():
                _tell("WATCHDOG=1")
            if ended.wait(period_s):
                return

    # A daemon, because a check that hangs must not keep the process from ending.
    threading.Thread(target=ping, name="watchdog", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _tell(line: str) -> None:
    address = os.environ.get(_SOCKET, "")
    if not address.startswith(("/", "@")):
        return
    # The process goes on if the service manager is gone, or its socket is full.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.settimeout(_SEND_S)
        # "@" stands for the zero byte at the beginning of an abstract address.
        sender.connect("\0" + address[1:] if address.startswith("@") else address)
        sender.send(line.encode())
