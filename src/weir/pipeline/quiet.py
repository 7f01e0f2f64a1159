"""Pauses the pipeline: it plans no new batch, and the planned one is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from weir.pipeline.source import PLAN
from weir.telemetry.store import StreamStore
from weir.telemetry.stream_ids import is_after
from weir.telemetry.streams import stream_key

# A hold ends by itself, so that a holder which dies does not stop the pipeline for good.
HOLD_S = 30.0


@contextmanager
def quiet(store: StreamStore, *, wait_s: float = 10) -> Iterator[bool]:
    """Pause the pipeline; yields True if no batch is running.

    It yields False if a batch takes longer than `wait_s`, or if the pipeline died during one.
    """
    store.hold(HOLD_S)
    try:
        yield _wait_until(lambda: _is_idle(store), wait_s)
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

    return _wait_until(landed, wait_s)


def _is_idle(store: StreamStore) -> bool:
    plan = store.recall(PLAN)
    return plan is None or plan["start"] == plan["end"]


def _wait_until(condition: Callable[[], bool], wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
