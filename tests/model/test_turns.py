"""Work that takes much memory is done in turns: one owner with much of it does not keep others waiting."""

from __future__ import annotations

import asyncio

import pytest

from weir.errors import Overloaded
from weir.model.turns import Turns


async def hold(turns: Turns, owner: str, end: asyncio.Event, begun: list[str]) -> None:
    async with turns.turn(owner):
        begun.append(owner)
        await end.wait()


async def test_an_owner_has_one_turn_at_a_time_and_leaves_the_others_theirs() -> None:
    turns, end, begun = Turns(most=2, wait_s=60, what="at all"), asyncio.Event(), list[str]()
    async with asyncio.TaskGroup() as tasks:
        for owner in ("a", "a", "a", "b"):
            tasks.create_task(hold(turns, owner, end, begun))
        while len(begun) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert begun == ["a", "b"]
        end.set()
    assert begun == ["a", "b", "a", "a"]


async def test_only_a_few_owners_have_a_turn_at_a_time() -> None:
    turns, end, begun = Turns(most=1, wait_s=60, what="at all"), asyncio.Event(), list[str]()
    async with asyncio.TaskGroup() as tasks:
        for owner in ("a", "b"):
            tasks.create_task(hold(turns, owner, end, begun))
        for _ in range(20):
            await asyncio.sleep(0)
        assert begun == ["a"]
        end.set()
    assert begun == ["a", "b"]


async def test_a_turn_that_does_not_come_is_an_error_and_a_long_one_is_none() -> None:
    turns, end, begun = Turns(most=2, wait_s=0.05, what="read logs"), asyncio.Event(), list[str]()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(hold(turns, "a", end, begun))
        while not begun:  # noqa: ASYNC110
            await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="too many requests read logs; try again"):
            await hold(turns, "a", end, begun)
        end.set()
    assert first.exception() is None
    async with turns.turn("a"):
        pass


async def test_an_error_of_the_work_stays_what_it_is() -> None:
    turns = Turns(most=1, wait_s=60, what="at all")
    with pytest.raises(TimeoutError, match="mine"):
        async with turns.turn("a"):
            raise TimeoutError("mine")
