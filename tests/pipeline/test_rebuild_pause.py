"""The pause of the pipeline by a rebuild: as long as the rebuild lives, and not for long afterwards."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from support.processes import frozen, kill9
from support.waiting import wait_until
from weir.errors import Conflict
from weir.pipeline import quiet, upkeep
from weir.pipeline import rebuild as rebuilding
from weir.pipeline.job import PipelineOptions
from weir.pipeline.leases import LEASE_S
from weir.pipeline.source import PLAN
from weir.pipeline.upkeep import ARCHIVE_LEASE
from weir.telemetry.store import HOLD, StreamStore

SOON_MS = 15_000
RUNNING = {"start": {"queue": "1-0"}, "end": {"queue": "2-0"}}


@pytest.fixture
def store(streams_url: str) -> Iterator[StreamStore]:
    store = StreamStore(streams_url)
    yield store
    store.close()


def rebuild_with(options: PipelineOptions, refill: Callable[[Callable[[], None]], None]) -> None:
    """Run a rebuild which needs no Spark, because `refill` stands for the landing of its tasks."""

    def instead(*_: Any, prolong: Callable[[], None], **__: Any) -> int:
        refill(prolong)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rebuilding, "_refill", instead)
        rebuilding.rebuild(None, options, from_ms=0, to_ms=1, metrics=["queue"])  # type: ignore[arg-type]


def rebuild_in_steps(options: PipelineOptions, seconds: float, steps: Connection) -> None:
    """Tell when the rebuild has cleared its span, wait for a word, and tell how the rebuild ended."""

    def refill(prolong: Callable[[], None]) -> None:
        prolong()
        steps.send("cleared")
        steps.recv()
        prolong()

    with pytest.MonkeyPatch.context() as patch:
        for module in (quiet, upkeep):
            patch.setattr(module, "LEASE_S", seconds)
        try:
            rebuild_with(options, refill)
            steps.send("done")
        except Conflict as error:
            steps.send(str(error))


@pytest.fixture
def start(options: PipelineOptions) -> Iterator[Callable[..., tuple[BaseProcess, Connection]]]:
    spawn, started = multiprocessing.get_context("spawn"), []

    def start(*, seconds: float = LEASE_S) -> tuple[BaseProcess, Connection]:
        mine, theirs = spawn.Pipe()
        process = spawn.Process(target=rebuild_in_steps, args=(options, seconds, theirs))
        process.start()
        started.append(process)
        assert mine.poll(60)
        assert mine.recv() == "cleared"
        return process, mine

    yield start
    for process in started:
        process.kill()
        process.join()


def left_ms(store: StreamStore, name: str) -> int:
    return int(store._redis.pttl(f"weir:pipeline:{name}"))  # type: ignore[arg-type]


def test_a_killed_rebuild_pauses_the_pipeline_and_the_upkeep_for_15_seconds_at_most(
    store: StreamStore, start: Callable[..., tuple[BaseProcess, Connection]]
) -> None:
    process, _ = start()
    assert process.pid is not None
    kill9(process.pid)
    process.join()
    assert 0 < left_ms(store, HOLD) <= SOON_MS
    assert 0 < left_ms(store, f"lease:{ARCHIVE_LEASE}") <= SOON_MS


@pytest.mark.parametrize("name", [HOLD, f"lease:{ARCHIVE_LEASE}"])
def test_a_rebuild_prolongs_its_pause_and_its_lease_during_a_long_step(
    store: StreamStore, start: Callable[..., tuple[BaseProcess, Connection]], name: str
) -> None:
    _, steps = start(seconds=4)
    lowest_ms = left_ms(store, name)

    def was_prolonged() -> bool:
        nonlocal lowest_ms
        lowest_ms, before_ms = left_ms(store, name), lowest_ms
        return lowest_ms > before_ms

    wait_until(was_prolonged, timeout_s=4)
    steps.send("go on")
    assert steps.poll(10)
    assert steps.recv() == "done"
    assert not store.is_held()
    assert store.read_lease(ARCHIVE_LEASE) is None


def test_a_rebuild_that_stood_still_while_a_batch_ran_does_not_end_as_done(
    store: StreamStore, start: Callable[..., tuple[BaseProcess, Connection]]
) -> None:
    process, steps = start(seconds=4)
    assert process.pid is not None
    with frozen(process.pid):
        wait_until(lambda: not store.is_held(), timeout_s=10)
        store.remember(PLAN, RUNNING)
    steps.send("go on")
    assert steps.poll(10)
    assert "a batch ran" in steps.recv()


def test_a_rebuild_that_stood_still_while_another_used_the_archive_does_not_end_as_done(
    store: StreamStore, start: Callable[..., tuple[BaseProcess, Connection]]
) -> None:
    process, steps = start(seconds=4)
    assert process.pid is not None
    with frozen(process.pid):
        wait_until(lambda: store.claim(ARCHIVE_LEASE, holder="another", seconds=60), timeout_s=10)
        store.unclaim(ARCHIVE_LEASE, holder="another")
    steps.send("go on")
    assert steps.poll(10)
    assert "`archive` ended" in steps.recv()


def test_a_rebuild_that_gives_up_leaves_the_pause_of_another_alone(
    store: StreamStore, options: PipelineOptions
) -> None:
    def lose_pause(prolong: Callable[[], None]) -> None:
        store._redis.set(f"weir:pipeline:{HOLD}", "rebuild", px=60_000)
        prolong()

    with pytest.raises(Conflict):
        rebuild_with(options, lose_pause)
    assert store.is_held()
