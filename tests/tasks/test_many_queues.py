"""An app with hundreds of queues is served by one worker over HTTP, or the worker says what to do."""

from __future__ import annotations

import asyncio

import pytest

from support.waiting import until
from tasks.shop import note
from tasks.world import START_S, World
from weir import App
from weir.client.places import MAX_POLLS
from weir.errors import InvalidInput
from weir.tasks.http_worker import check_queue_count

QUEUES = 130
"""More than the connections of a client for one kind of requests."""
many = App(name="many")


def _task(number: int) -> None:
    @many.task(name=f"run-{number}", queue=f"many-{number}", lease=5)
    async def run() -> int:
        note(f"ran {number}")
        # Longer than the lease: it has to be renewed although every queue has its poll.
        await asyncio.sleep(6)
        return number


for _number in range(QUEUES):
    _task(_number)


async def test_idle_queues_keep_no_lease_waiting(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_URL", world.api.url)
    monkeypatch.setenv("WEIR_TOKEN", world.admin_token)
    with world.worker(app="tasks.test_many_queues:many"):
        await until(lambda: "working as" in world.log(), within_s=2 * START_S)
        try:
            handles = [await many.tasks[f"run-{number}"].apush() for number in (0, 70, QUEUES - 1)]
            assert [await one.aresult(timeout=START_S) for one in handles] == [0, 70, QUEUES - 1]
        finally:
            await many.aclose()
    assert sorted(world.notes("ran"), key=int) == ["0", "70", str(QUEUES - 1)]


def test_more_queues_than_a_worker_can_ask_are_refused_with_a_way_out() -> None:
    check_queue_count(MAX_POLLS, max_files=65_536)
    with pytest.raises(InvalidInput, match="--queue"):
        check_queue_count(MAX_POLLS + 1, max_files=65_536)
    with pytest.raises(InvalidInput, match="ulimit -n"):
        check_queue_count(1_000, max_files=1_024)
