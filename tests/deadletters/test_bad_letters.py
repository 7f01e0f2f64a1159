"""A letter that cannot be stored, or ends its mover, keeps no other letter in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.deadletters.world import World

from weir.deadletters import mover as moving
from weir.deadletters.mover import Mover
from weir.errors import BrokerUnavailable
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.backoff import Backoff
from weir.model.message import DeadMessage, NewMessage


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "BACKOFF", Backoff(first_s=0.0, longest_s=0.0))


def odd_at(
    monkeypatch: pytest.MonkeyPatch,
    is_odd: Callable[[DeadMessage], bool],
    at: Callable[[], Awaitable[None]],
) -> None:
    """Do something else when a batch with such a letter is stored."""
    store = moving.store_deaths

    async def store_or_not(connection: Any, messages: Sequence[DeadMessage], *rest: Any, **more: Any) -> Any:
        if any(map(is_odd, messages)):
            await at()
        return await store(connection, messages, *rest, **more)

    monkeypatch.setattr(moving, "store_deaths", store_or_not)


async def fail() -> None:
    raise LookupError("nobody foresaw this")


async def dead_letters(world: World, count: int, odd: int) -> None:
    """Dead letters of which one has an odd header."""
    queue = await world.define("orders", max_attempts=1)
    for number in range(count):
        headers = {"odd": "yes"} if number == odd else {}
        await world.broker.enqueue(queue, [NewMessage(payload=b"%d" % number, headers=headers, key="k")])
    await world.die(queue, error="refused")


async def test_a_letter_that_cannot_be_stored_is_stored_without_its_headers_and_the_others_whole(
    lone_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = lone_world
    await dead_letters(world, 40, odd=7)
    odd_at(monkeypatch, lambda letter: "odd" in letter.headers, fail)
    mover = Mover(world.broker, world.database, clock=world.clock, batch=32)
    for _ in range(100):
        if not await world.broker.take_dead(world.shard, limit=1):
            break
        await mover.run_round()
    assert await world.summary() == {"orders": 40}
    letters = {
        letter.payload: letter for letter in await world.newest(world.environment.queue("orders"), limit=50)
    }
    assert set(letters) == {b"%d" % number for number in range(40)}
    assert {payload for payload, letter in letters.items() if letter.key is None} == {b"7"}
    assert letters[b"7"].error.startswith("stored without its headers and its keys after 4 tries")
    assert "refused" in letters[b"7"].error


async def test_a_letter_whose_payload_ends_its_mover_is_stored_without_it(
    lone_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = lone_world
    await dead_letters(world, 20, odd=-1)
    reached = asyncio.Event()

    async def end() -> None:
        reached.set()
        await asyncio.Event().wait()

    odd_at(monkeypatch, lambda letter: letter.payload == b"5", end)
    ends = 0
    while await world.broker.take_dead(world.shard, limit=1):
        reached.clear()
        # A new process each time.
        mover = Mover(world.broker, world.database, clock=world.clock, batch=16)
        round_ = asyncio.create_task(mover.run_round())
        ended = asyncio.create_task(reached.wait())
        await asyncio.wait([round_, ended], return_when=asyncio.FIRST_COMPLETED)
        await cancel_and_wait([round_, ended])
        ends += reached.is_set()
        assert ends < 30
    assert await world.summary() == {"orders": 20}
    letters = await world.newest(world.environment.queue("orders"), limit=50)
    (bare,) = [letter for letter in letters if not letter.payload]
    assert bare.error.startswith("stored without its headers, its keys and its payload after 7 tries")


async def test_a_shard_that_is_away_keeps_the_letters_of_no_other_shard(
    lone_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = lone_world
    await dead_letters(world, 3, odd=-1)
    take_dead = world.broker.take_dead

    async def take(shard: int, **options: Any) -> Any:
        if shard != world.shard:
            raise BrokerUnavailable("away")
        return await take_dead(shard, **options)

    monkeypatch.setattr(world.broker, "take_dead", take)
    assert world.broker.shards > 1
    await Mover(world.broker, world.database, clock=world.clock).run_round()
    assert await world.summary() == {"orders": 3}
