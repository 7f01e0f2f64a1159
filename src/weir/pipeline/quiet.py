"""Pauses the pipeline: it plans no new batch, and its planned batch is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from weir.errors import Conflict
from weir.pipeline.leases import LEASE_S, renewed
from weir.pipeline.source import PLAN
from weir.telemetry.store import HOLD, StreamStore
from weir.telemetry.stream_ids import is_after
from weir.telemetry.streams import stream_key

# The time for an audit to link the files of its tables: a batch may be late by no more than a second.
SHORT_HOLD_S = 0.9


@contextmanager
def quiet(store: StreamStore, *, wait_s: float) -> Iterator[Callable[[], None]]:
    """Pause the pipeline for a rebuild; yields a function that raises `Conflict` if a batch ran nevertheless.

    A thread prolongs the pause, and it ends by itself `LEASE_S` after its process died. Entering the block
    raises `Conflict` if a batch takes longer than `wait_s`, or if the pipeline died during one.
    """
    holder = uuid4().hex
    is_still = partial(_holds_idle, store, holder, seconds=LEASE_S)
    try:
        if not _wait_until(is_still, wait_s):
            raise Conflict("a batch is still running; wait for the pipeline, or restart it if it died")
        before = store.recall(PLAN)

        def require_still() -> None:
            # The plan is noted before a batch inserts anything. So if it is the same, nothing was inserted.
            if not is_still() or store.recall(PLAN) != before:
                raise Conflict("a batch ran while the pipeline was to pause; try again")

        with renewed(lambda: store.hold(LEASE_S, holder=holder), seconds=LEASE_S, name=HOLD):
            yield require_still
    finally:
        store.release(holder=holder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """How long a step kept the pipeline from planning, and why its result does not count (empty: it does)."""

    held_s: float
    problem: str = ""


def run_between_batches(store: StreamStore, step: Callable[[], None], *, wait_s: float) -> Pause:
    """Run a short step while no batch is running; waits for the end of the running batch first.

    The pipeline waits for `SHORT_HOLD_S` at most, even if this process dies. If the step takes longer, or a
    batch came in between, its result does not count.
    """
    holder = uuid4().hex
    if not _wait_until(lambda: _holds_idle(store, holder, seconds=SHORT_HOLD_S), wait_s):
        store.release(holder=holder)
        return Pause(held_s=0, problem=f"a batch or a rebuild was running for longer than {wait_s:.0f} s")
    began, before = time.monotonic(), store.recall(PLAN)
    try:
        step()
        # The plan is noted before a batch inserts anything. So if it is the same, nothing was inserted.
        same = store.recall(PLAN) == before and _is_idle(before)
    finally:
        in_time = store.release(holder=holder)
    held_s = min(time.monotonic() - began, SHORT_HOLD_S)
    if not in_time:
        return Pause(held_s=held_s, problem=f"copying the tables took longer than {SHORT_HOLD_S} s")
    return Pause(held_s=held_s, problem="" if same else "a batch began meanwhile")


def _holds_idle(store: StreamStore, holder: str, *, seconds: float) -> bool:
    """Take or prolong the hold; True if no batch is running. The hold ends soon after its holder dies."""
    return store.hold(seconds, holder=holder) and _is_idle(store.recall(PLAN))


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


def _is_idle(plan: Mapping[str, Any] | None) -> bool:
    return plan is None or plan["start"] == plan["end"]


def _wait_until(condition: Callable[[], bool], wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
