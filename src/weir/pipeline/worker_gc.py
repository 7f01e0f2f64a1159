"""The garbage collector in Spark's Python workers."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache


@lru_cache(maxsize=1)
def settle_memory() -> None:
    """Keep what was imported out of every later collection.

    Spark's worker loop collects after each task; without this it walks all of NumPy and Arrow each time,
    which took more than half of a worker's time on small batches.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def without_collector() -> Iterator[None]:
    """No collections for a while, for code that makes many objects and no cycles.

    Replies of Redis are lists of lists. Looking through them for cycles took half of the time of a read.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
