"""Closes a connection so that the client still gets its answer, within a limited time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LINGER_S = 2.0
LINGER_BYTES = 8 * 1_048_576
"""A client that is refused in the middle of its request goes on sending for a while. If its connection were
closed, the kernel would answer with a reset, and the client might never see the refusal."""


def _never() -> bool:
    return False


class PoliteTransport:
    """An asyncio transport whose `close` reads and drops the rest of an unfinished request.

    The methods that every request calls are the transport's own bound methods, so they cost nothing here.
    """

    __slots__ = (
        "_ending",
        "_linger",
        "_loop",
        "_read_past",
        "_send_timeout_s",
        "_stalled",
        "_transport",
        "_unfinished",
        "get_extra_info",
        "pause_reading",
        "resume_reading",
        "write",
    )

    def __init__(
        self, transport: asyncio.Transport, *, unfinished: Callable[[], bool], send_timeout_s: float
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._unfinished = unfinished
        self._send_timeout_s = send_timeout_s
        self._ending = False
        self._read_past = 0
        self._linger: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self.write = transport.write
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def is_closing(self) -> bool:
        return self._ending or self._transport.is_closing()

    def close(self) -> None:
        """Send the written bytes, read and drop the rest of an unfinished request, then close."""
        if self.is_closing():
            return
        self._ending = True
        if self._unfinished() and self._transport.can_write_eof():
            self._transport.write_eof()
            self._transport.resume_reading()
            self._linger = self._loop.call_later(LINGER_S, self._transport.abort)
            return
        if self._transport.get_write_buffer_size():
            self.watch_sending()
        self._transport.close()

    def abort(self) -> None:
        """Close now, and drop written bytes that are not sent yet."""
        self._ending = True
        self._transport.abort()

    def skip(self, size: int) -> None:
        """Count bytes of a request that nobody will read; close if there are too many."""
        self._read_past += size
        if self._read_past > LINGER_BYTES:
            self.abort()

    def watch_sending(self) -> None:
        """Cut the client off if it reads none of the written bytes for too long."""
        if self._stalled is None:
            self._arm(self._transport.get_write_buffer_size())

    def stop_watching(self) -> None:
        """Stop that, because the client has read enough or is gone."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def end(self) -> None:
        """Stop the timers of a lost connection, and let go of its protocol."""
        self._unfinished = _never
        self.stop_watching()
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _arm(self, written: int) -> None:
        self._stalled = self._loop.call_later(self._send_timeout_s, self._look, written)

    def _look(self, before: int) -> None:
        written = self._transport.get_write_buffer_size()
        if written >= before:
            self._transport.abort()
        else:
            self._arm(written)
