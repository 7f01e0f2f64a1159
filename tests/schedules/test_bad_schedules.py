"""A schedule that fails, hangs or ends its process costs no other schedule its tick; many delay nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from schedules.world import HOUR_MS, World, end_here
from weir.exchange.seam import PushAnswer, Pusher, PushItem
from weir.model.backoff import Backoff
from weir.model.ids import new_id
from weir.model.item_loops import ItemPatience
from weir.model.names import EnvironmentRef
from weir.schedules import scheduler
from weir.schedules.schedule import Schedule
from weir.schedules.scheduler import BATCH, LOST_MS, PATIENCE
from weir.spec.ir import MissedTicks


class OddPusher:
    """Does something else at the ticks for the queue `odd`."""

    def __init__(self, inner: Pusher, at: Callable[[], Awaitable[None]]) -> None:
        self._inner = inner
        self._at = at
        self.environments: list[EnvironmentRef] = []

    async def push(self, items: Sequence[PushItem]) -> list[PushAnswer]:
        if any(item.queue.queue == "odd" for item in items):
            await self._at()
        self.environments.append(items[0].queue.scope)
        return await self._inner.push(items)


async def two_schedules(world: World, at: Callable[[], Awaitable[None]]) -> OddPusher:
    """A good schedule and an odd one of one environment, both due."""
    pusher = OddPusher(world.pusher.inner, at)
    world.scheduler._pusher = pusher
    for name in ("odd", "even"):
        await world.define(name)
        await world.create(name, queue=name, every_ms=HOUR_MS, missed=MissedTicks.ALL)
    world.clock.advance(HOUR_MS)
    return pusher


async def shown(world: World, name: str) -> Schedule:
    return (await world.schedules.show(world.environment, name)).schedule


async def test_a_schedule_that_raises_is_put_off_and_paused_with_its_error_and_the_others_tick(
    world: World,
) -> None:
    async def fail() -> None:
        raise LookupError("nobody foresaw \ud83d")

    await two_schedules(world, fail)
    await world.serve()
    assert await world.outcomes("even") == [("pushed", 1)]
    odd = await shown(world, "odd")
    assert (odd.paused, odd.problem) == (False, "LookupError: nobody foresaw ?")
    for _ in range(PATIENCE.tries - 1):
        await world.pass_ms(10_000)
    odd = await shown(world, "odd")
    assert (odd.paused, odd.problem) == (True, "paused after 5 tries: LookupError: nobody foresaw ?")
    world.scheduler._pusher = world.pusher
    await world.schedules.pause(world.environment, "odd", paused=False)
    assert (await shown(world, "odd")).problem is None
    await world.pass_ms(HOUR_MS)
    assert await world.outcomes("odd") == [("pushed", 1)]


async def test_a_schedule_that_hangs_delays_other_environments_by_a_bounded_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        scheduler, "PATIENCE", ItemPatience(tries=5, longest_s=0.2, backoff=Backoff(first_s=1, longest_s=1))
    )

    async def hang() -> None:
        await asyncio.Event().wait()

    await two_schedules(world, hang)
    other = World(world.database, EnvironmentRef(organization=new_id(), project="p", environment="e"))
    other.clock, other.broker = world.clock, world.broker
    other.schedules = type(other.schedules)(world.database, world.broker, clock=world.clock)
    await other.define()
    await other.create(every_ms=1_000)
    await world.pass_ms(1_000)
    assert await other.outcomes() == [("pushed", 1)]
    assert "too long" in str((await shown(world, "odd")).problem)
    world.scheduler._pusher = world.pusher
    await world.pass_ms(10_000)
    assert await world.outcomes("odd") == [("pushed", 1)]
    assert await world.outcomes("even") == [("pushed", 1)]


async def test_a_schedule_that_ends_its_process_is_paused_and_the_others_tick(world: World) -> None:
    async def end() -> None:
        end_here()
        await asyncio.sleep(0)

    await two_schedules(world, end)
    ends = 0
    for _ in range(2 * PATIENCE.tries):
        world.scheduler._counted_lost_s = float("-inf")
        round_ = asyncio.create_task(world.scheduler.run_round())
        (result,) = await asyncio.gather(round_, return_exceptions=True)
        ends += isinstance(result, asyncio.CancelledError)
        world.clock.advance(LOST_MS + 1)
    assert ends == PATIENCE.tries
    odd = await shown(world, "odd")
    assert odd.paused
    assert odd.problem == "paused after 5 tries: the process that worked on it ended each time"
    assert await world.outcomes("even") == [("pushed", 1)]
    assert not (await shown(world, "even")).paused


async def test_environments_take_turns(world: World) -> None:
    """A tenant with many schedules that are due for long delays a neighbour by no round."""
    pusher = OddPusher(world.pusher.inner, asyncio.Event().wait)
    world.scheduler._pusher = pusher
    await world.define()
    for number in range(3 * BATCH):
        await world.create(f"s{number}", every_ms=1_000)
    world.clock.advance(1_000)
    other = World(world.database, EnvironmentRef(organization=new_id(), project="p", environment="e"))
    other.clock, other.broker = world.clock, world.broker
    other.schedules = type(other.schedules)(world.database, world.broker, clock=world.clock)
    await other.define()
    await other.create(every_ms=1_000)
    world.clock.advance(1_000)
    assert await world.scheduler.run_round() == BATCH
    assert await other.outcomes() == [("pushed", 1)]
