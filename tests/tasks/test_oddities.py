"""Whatever a task raises, returns or tells, its message is settled at once, and says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.waiting import until
from tasks import odd_app
from tasks.odd_app import DEADLY, DONE, odd, odd_async, odd_process, slow, tell_oddly
from tasks.world import START_S, World
from weir import ResultNotKept, TaskFailed
from weir.testing import eager

both = pytest.mark.parametrize("stores", [False, True], ids=["over HTTP", "on the stores"])
# A cancellation has no text of its own, and the text of a group begins with its traceback.
SAID = {way: way for way in DEADLY} | {"CancelledError": "ancelled", "BaseExceptionGroup": "Exception Group"}


@both
async def test_every_odd_end_of_a_task_settles_its_message(world: World, stores: bool) -> None:
    before = odd_app.app.address
    odd_app.app.address = replace(before, url=world.api.url, token=world.write_token)
    try:
        with world.worker("--concurrency", "2", stores=stores, app="tasks.odd_app:app"):
            await until(lambda: "working as" in world.log(), within_s=START_S)
            dying = [(await task.apush(way), way) for task in (odd, odd_async, odd_process) for way in DEADLY]
            working = [(await task.apush(way), way) for task in (odd, odd_async, odd_process) for way in DONE]
            told = await tell_oddly.apush()
            for handle, way in dying:
                with pytest.raises(TaskFailed) as found:
                    await handle.aresult(timeout=START_S)
                assert SAID[way] in str(found.value), way
            for handle, way in working:
                try:
                    await handle.aresult(timeout=START_S)
                except ResultNotKept:
                    assert way != "nothing"
            with pytest.raises(TaskFailed, match="after odd progress"):
                await told.aresult(timeout=START_S)
    finally:
        await odd_app.app.aclose()
        odd_app.app.address = before


@pytest.mark.parametrize("task", [odd, odd_async], ids=["sync", "async"])
@pytest.mark.parametrize("way", DEADLY)
def test_a_test_in_memory_sees_every_odd_end(task, way: str) -> None:
    with eager(odd_app.app), pytest.raises(TaskFailed) as found:
        task.push(way).result(timeout=1)
    assert SAID[way] in str(found.value)


@pytest.mark.parametrize("way", DONE)
def test_a_test_in_memory_sees_that_a_task_is_done_whose_result_is_odd(way: str) -> None:
    with eager(odd_app.app) as tasks:
        assert odd.push(way).status() in ("done", "gone")
        assert tasks.dead == []


def test_a_test_in_memory_ends_a_task_that_takes_too_long() -> None:
    with eager(odd_app.app), pytest.raises(TaskFailed, match="longer than 200 ms"):
        slow.push().result(timeout=1)
