"""Tasks that end for certain, and work that runs to its end."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from weir.model import asyncio_tasks


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again(monkeypatch):
    monkeypatch.setattr(asyncio_tasks, "AGAIN_S", 0.01)

    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(asyncio_tasks.cancel_and_wait([task]), 5)
    assert task.cancelled()


async def test_work_is_finished_though_its_caller_is_cancelled_and_that_is_raised_then():
    done = []

    async def work() -> None:
        await asyncio.sleep(0.02)
        done.append(True)

    task = asyncio.create_task(asyncio_tasks.run_to_end(work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [True]


async def test_an_error_of_the_work_is_raised():
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await asyncio_tasks.run_to_end(work())
