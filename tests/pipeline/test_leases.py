"""Leases in Redis: kept for as long as their holder lives, and not for long afterwards."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from multiprocessing.synchronize import Event

import pytest

from support.processes import kill9
from support.waiting import wait_until
from weir.errors import Conflict
from weir.pipeline.leases import LEASE_S, held_lease
from weir.telemetry.store import StreamStore

NAME = "test"
SECONDS = 4.0
REFUSAL = "it is taken"


@pytest.fixture
def store(streams_url: str) -> Iterator[StreamStore]:
    store = StreamStore(streams_url)
    yield store
    store.close()


def left_ms(store: StreamStore) -> int:
    lease = store.read_lease(NAME)
    return 0 if lease is None else lease.left_ms


def test_a_lease_is_renewed_during_a_long_step(store: StreamStore) -> None:
    with held_lease(store, NAME, seconds=SECONDS, wait_s=0, refusal=REFUSAL):
        lowest_ms = left_ms(store)

        def was_renewed() -> bool:
            nonlocal lowest_ms
            lowest_ms, before_ms = left_ms(store), lowest_ms
            return lowest_ms > before_ms

        wait_until(was_renewed, timeout_s=SECONDS)
    assert store.read_lease(NAME) is None


def test_a_lease_that_another_took_is_not_taken_back(store: StreamStore) -> None:
    with held_lease(store, NAME, seconds=SECONDS, wait_s=0, refusal=REFUSAL) as prolong:
        store._redis.set(f"weir:pipeline:lease:{NAME}", "another", px=60_000)
        with pytest.raises(Conflict, match="ended"):
            prolong()
    lease = store.read_lease(NAME)
    assert lease is not None
    assert lease.holder == "another"


def hold(url: str, holds: Event) -> None:
    with held_lease(StreamStore(url), NAME, seconds=SECONDS, wait_s=0, refusal=REFUSAL):
        holds.set()
        signal.pause()


def test_the_lease_of_a_killed_process_ends_soon(store: StreamStore, streams_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    holds = spawn.Event()
    process = spawn.Process(target=hold, args=(streams_url, holds))
    process.start()
    assert holds.wait(30)
    assert process.pid is not None
    kill9(process.pid)
    process.join()
    with held_lease(store, NAME, seconds=SECONDS, wait_s=2 * SECONDS, refusal=REFUSAL):
        pass


def test_a_lease_of_a_killed_process_ends_before_others_give_up() -> None:
    """Audits wait for 30 s, and rebuilds for 20 s."""
    assert LEASE_S <= 15
