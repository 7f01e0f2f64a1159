"""Keeps the garbage collector out of the way in Spark's Python workers."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache


@lru_cache(maxsize=1)
def freeze_imports() -> None:
    """Exclude all imported modules from later collections.

    Spark's worker loop collects after each task. Without this it visits all of NumPy and Arrow each time,
    which took more than half of a worker's time on small batches.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def without_collector() -> Iterator[None]:
    """Switch the collector off for code that makes many objects and no cycles.

    Replies of Redis are lists of lists. Searching them for cycles took half of the time of a read (0012).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
