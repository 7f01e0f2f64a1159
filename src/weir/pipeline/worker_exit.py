"""Ends a Python process of Spark without a traceback when Spark has closed the connection to it."""

from __future__ import annotations

import os
import sys
import traceback


def leave_if_abandoned() -> None:
    """End this process if it is unwinding because Spark hung up.

    Call this from a source's `stop`. Spark's runner would go on to report the end of the connection over that
    same connection, and print a `BrokenPipeError` at every normal stop.
    """
    error = sys.exception()
    if isinstance(error, EOFError | ConnectionError) and not _is_ours(error):
        os._exit(0)


def _is_ours(error: BaseException) -> bool:
    """Whether the error passed through code of Weir, so that Spark must hear of it."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(str(frame.f_globals.get("__name__", "")).startswith("weir.") for frame in frames)
