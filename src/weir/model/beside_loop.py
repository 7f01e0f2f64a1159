"""Work on large values, done in a thread: a megabyte of JSON can take 50 ms, and the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LARGE_BYTES = 65_536
"""Smaller values are worked on in place, because the way to a thread and back takes as long (0.1 ms)."""
PART_BYTES = 262_144
"""A large answer is handed to its connection in parts of this size."""
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="large-values")
"""One for all: with more of them, the event loop would wait for the interpreter behind each."""


async def beside_loop(work: Callable[P, T], size: int, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do work on a value of about `size` bytes: here if it is small, else in the thread."""
    if size < LARGE_BYTES:
        return work(*args, **kwargs)
    call: Callable[[], Any] = partial(work, *args, **kwargs)
    result: T = await asyncio.get_running_loop().run_in_executor(_THREAD, call)
    return result
