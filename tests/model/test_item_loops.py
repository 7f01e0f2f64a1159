from __future__ import annotations

import asyncio

import pytest

from weir.errors import BrokerUnavailable, InvalidInput
from weir.model.backoff import Backoff
from weir.model.item_loops import ItemPatience, ItemSlots, Setback, attempt

PATIENCE = ItemPatience(tries=3, longest_s=30.0, backoff=Backoff(first_s=1.0, longest_s=60.0))


async def tried(error: BaseException, *, tries: int = 1, patience: ItemPatience = PATIENCE) -> Setback:
    async def work() -> str:
        raise error

    setback = await attempt(work, tries=tries, patience=patience, item="an item")
    assert isinstance(setback, Setback)
    return setback


async def test_the_answer_of_work_that_succeeds_is_returned() -> None:
    async def work() -> str:
        return "done"

    assert await attempt(work, tries=1, patience=PATIENCE, item="an item") == "done"


class Panic(BaseException):
    """As libraries written in Rust raise it."""


@pytest.mark.parametrize(
    "error", [ValueError("odd"), RecursionError(), StopIteration(), Panic("odd"), asyncio.CancelledError()]
)
async def test_whatever_work_raises_is_the_setback_of_its_item(error: BaseException) -> None:
    setback = await tried(error)
    # A coroutine turns StopIteration into RuntimeError.
    assert type(error).__name__ in setback.error or "StopIteration" in setback.error
    assert setback.counted
    assert not setback.given_up


async def test_pauses_grow_and_the_last_try_gives_up() -> None:
    found = [await tried(ValueError("odd"), tries=tries) for tries in (1, 2, 3)]
    assert [one.pause_ms for one in found] == [1_000, 2_000, 4_000]
    assert [one.given_up for one in found] == [False, False, True]


async def test_an_error_that_no_retry_can_help_gives_up_at_once() -> None:
    setback = await tried(InvalidInput("the name is too long"))
    assert setback == Setback(error="the name is too long", pause_ms=1_000, given_up=True)


async def test_a_store_that_is_away_costs_an_item_no_try() -> None:
    setback = await tried(BrokerUnavailable("Redis is away"), tries=3)
    assert not setback.counted
    assert not setback.given_up


async def test_an_item_that_ended_its_process_in_every_try_is_not_touched_again() -> None:
    touched = []

    async def work() -> None:
        touched.append(True)

    setback = await attempt(work, tries=4, patience=PATIENCE, item="an item")
    assert isinstance(setback, Setback)
    assert setback.given_up
    assert "the process that worked on it ended" in setback.error
    assert not touched


async def test_work_that_hangs_is_ended_and_counted() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    brief = ItemPatience(tries=3, longest_s=0.01, backoff=PATIENCE.backoff)
    setback = await attempt(work, tries=1, patience=brief, item="an item")
    assert isinstance(setback, Setback)
    assert setback.error == "it took longer than 10 ms"
    assert setback.counted


async def test_the_text_of_a_setback_fits_into_a_database() -> None:
    setback = await tried(ValueError("half \ud83d and \x00 " + "x" * 10_000))
    assert setback.error.startswith("ValueError: half ? and \ufffd xxx")
    assert len(setback.error) == 500


async def test_a_cancelled_loop_ends() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(attempt(work, tries=1, patience=PATIENCE, item="an item"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_organization_leaves_slots_to_the_others() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    async with ItemSlots(total=3, each=2) as slots:
        slots.start("slow", hang())
        slots.start("slow", hang())
        assert slots.crowded() == ["slow"]
        slots.start("other", hang())
        assert (slots.crowded(), slots.free) == (["slow"], 0)


async def test_a_slot_is_free_again_when_its_item_ended_however_it_ended() -> None:
    async def fail() -> None:
        raise ValueError("odd")

    async with ItemSlots(total=1, each=1) as slots:
        slots.start("acme", fail())
        await slots.wait(30.0)
        assert slots.free == 1
        assert slots.crowded() == []
