"""Purges: small transactions, exhausted letters only unless asked, and never everything by accident."""

from __future__ import annotations

import pytest
from tests.deadletters.world import World

from weir.deadletters.bulk_action_states import BulkActionState
from weir.deadletters.bulk_actions import BulkActionKind, NewBulkAction
from weir.deadletters.filters import Filter
from weir.deadletters.rates import SendLimits
from weir.errors import Conflict, InvalidInput, NotFound
from weir.model.message import Failure


def purge(*, dry_run: bool = False, **fields: object) -> NewBulkAction:
    return NewBulkAction(kind=BulkActionKind.PURGE, filter=Filter(**fields), dry_run=dry_run)  # type: ignore[arg-type]


async def half_exhausted(world: World) -> None:
    queue = await world.define("orders", max_attempts=3)
    await world.push(queue, *range(4))
    for delivery in await world.broker.dequeue(queue, consumer="test", limit=2):
        await world.broker.dead_letter([Failure(lease=delivery.lease, error="rejected")])
    for _ in range(3):
        await world.die(queue)
        world.clock.advance(60_000)
    await world.move()
    assert await world.summary() == {"orders": 4}


def test_a_purge_takes_neither_patch_nor_canary() -> None:
    with pytest.raises(InvalidInput):
        NewBulkAction(kind=BulkActionKind.PURGE, filter=Filter(queue="a"), limits=SendLimits(canary=3))
    with pytest.raises(InvalidInput):
        NewBulkAction(kind=BulkActionKind.PURGE, filter=Filter(queue="a"), patch="{}")


async def test_a_purge_takes_only_letters_that_used_up_their_attempts(world: World) -> None:
    await half_exhausted(world)
    dry = await world.work(await world.start(purge(queue="orders", dry_run=True)))
    assert (dry.matched, dry.done) == (2, 0)
    action = await world.work(await world.start(purge(queue="orders")))
    assert (action.state, action.done) == (BulkActionState.COMPLETED, 2)
    assert await world.summary() == {"orders": 2}
    action = await world.work(await world.start(purge(queue="orders", include_unexhausted=True)))
    assert action.done == 2
    assert await world.summary() == {"orders": 0}
    await world.check_exact()


async def test_a_purge_by_expression_leaves_the_rest(world: World) -> None:
    queue = await world.define("orders")
    await world.kill(queue, *({"n": n} for n in range(10)))
    action = await world.work(await world.start(purge(expression="payload.n < 4")))
    assert action.done == 4
    assert await world.summary() == {"orders": 6}
    await world.check_exact()


async def test_one_letter_can_be_deleted(world: World) -> None:
    await half_exhausted(world)
    queue = world.environment.queue("orders")
    letters = await world.newest(queue)
    spent = next(letter for letter in letters if letter.exhausted)
    fresh = next(letter for letter in letters if not letter.exhausted)
    await world.letters.delete(queue, spent.id, by="ann")
    with pytest.raises(NotFound):
        await world.letters.delete(queue, spent.id, by="ann")
    with pytest.raises(Conflict, match="1 of 3 attempts"):
        await world.letters.delete(queue, fresh.id, by="ann")
    await world.letters.delete(queue, fresh.id, by="ann", exhausted_only=False)
    assert await world.summary() == {"orders": 2}
    await world.check_exact()


async def test_a_replayed_letter_cannot_be_deleted(world: World) -> None:
    queue = await world.define("orders")
    (letter_id,) = await world.kill(queue, 1)
    await world.letters.redrive(queue, letter_id, by="ann")
    with pytest.raises(Conflict):
        await world.letters.delete(queue, letter_id, by="ann")
    await world.check_exact()


async def test_lists_are_paged_from_the_newest(world: World) -> None:
    from weir.deadletters.store import Position

    queue = await world.define("orders")
    ids = []
    for n in range(5):
        world.clock.advance(10)
        ids += await world.kill(queue, n)
    first = await world.newest(queue, limit=2)
    assert [letter.id for letter in first] == [ids[4], ids[3]]
    last = first[-1]
    rest = await world.newest(queue, before=Position(enqueued_at_ms=last.enqueued_at_ms, id=last.id))
    assert [letter.id for letter in rest] == [ids[2], ids[1], ids[0]]
    assert await world.newest(world.environment.queue("unknown")) == []
