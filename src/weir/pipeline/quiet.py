"""A moment of quiet: the pipeline plans no batch, and what it had planned is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from weir.pipeline.source import PLAN
from weir.telemetry.store import StreamStore
from weir.telemetry.stream_ids import is_after
from weir.telemetry.streams import stream_key

HOLD_S = 30.0
"""A hold ends by itself after this long, should its holder die."""


@contextmanager
def quiet(store: StreamStore, *, wait_s: float = 10) -> Iterator[bool]:
    """Hold the pipeline; gives whether nothing is under way any more.

    It is not when a batch takes longer than `wait_s`, or when the pipeline died within one.
    """
    store.hold(HOLD_S)
    try:
        yield _until(lambda: _nothing_under_way(store), wait_s)
    finally:
        store.release()


def wait_for_landing(store: StreamStore, *, metrics: Sequence[str], shards: int, wait_s: float) -> bool:
    """Wait until everything that the streams hold now has landed."""
    keys = [stream_key(metric, shard) for metric in metrics for shard in range(shards)]
    wanted = {
        key: tail.last_id for key, tail in zip(keys, store.tails(keys), strict=True) if tail is not None
    }

    def landed() -> bool:
        reached = store.positions(list(wanted))
        return not any(is_after(last, at) for last, at in zip(wanted.values(), reached, strict=True))

    return _until(landed, wait_s)


def _nothing_under_way(store: StreamStore) -> bool:
    plan = store.remembered(PLAN)
    return plan is None or plan["start"] == plan["end"]


def _until(condition: Callable[[], bool], wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
