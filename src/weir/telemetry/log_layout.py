"""How the bodies of logged messages are laid out, and how much is logged: for scripts and readers alike."""

from __future__ import annotations

LOGGED = ">I1I1I4I4"
"""1 if the message was left out, else 0; sizes of the idempotency key, the headers and the payload."""
LOG_CALL_BYTES = 16 * 1024 * 1024
"""The bytes of bodies that one call may log; further messages are logged without their bodies."""
LOG_STREAM_BYTES = 128 * 1024 * 1024
"""The memory that a shard's log may take in Redis. Then the oldest entries are dropped, as a recorded gap."""


def lua_block() -> str:
    """The layout and the bounds as constants of the scripts."""
    return f"local LOGGED, LOG_CALL_BYTES = '{LOGGED}', {LOG_CALL_BYTES}\n"
