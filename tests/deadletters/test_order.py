"""The original order of a key survives any number of redrives, canaries and patches."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator

import pytest
from tests.deadletters.world import World, numbers, with_limits

from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.control.database import Database
from weir.deadletters.bulk_action_states import BulkActionState
from weir.deadletters.bulk_actions import BulkAction, BulkActionKind, NewBulkAction
from weir.deadletters.filters import Filter
from weir.model.message import Delivery, Failure
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import Ordering
from weir.testing.clocks import ManualClock

PATCH = '{"patched": true}'


def redrive(**options: object) -> NewBulkAction:
    return NewBulkAction(kind=BulkActionKind.REDRIVE, filter=Filter(queue="orders"), **with_limits(options))


async def expire_all(world: World, count: int, *, keys: int = 1) -> QueueRef:
    """Let messages expire together, so that all of them die in the same millisecond."""
    queue = await world.define("orders", ordering=Ordering.PER_KEY, message_ttl_ms=300)
    for n in range(count):
        await world.push(queue, {"n": n}, key=f"k{n % keys}")
    world.clock.advance(300)
    await world.broker.sweep(world.shard)
    await world.move()
    return queue


async def fail_all(world: World, queue: QueueRef) -> list[int]:
    """Hand everything out in turn and let it die again; the order in which it was handed out."""
    seen: list[int] = []
    while deliveries := await world.broker.dequeue(queue, consumer="test", limit=100):
        seen += numbers([delivery.payload for delivery in deliveries])
        await world.broker.nack([Failure(lease=delivery.lease, error="again") for delivery in deliveries])
    await world.move()
    return seen


async def test_a_second_and_a_third_redrive_keep_the_order_of_a_key(world: World) -> None:
    queue = await expire_all(world, 60)
    for _ in range(3):
        assert (await world.work(await world.start(redrive()))).done == 60
        assert await fail_all(world, queue) == list(range(60))


async def test_redis_hands_out_what_is_redriven_twice_in_its_order(
    shared_url: str, redis_url: str, environment: EnvironmentRef
) -> None:
    clock = ManualClock()
    broker = RedisBroker(RedisConnection(url=redis_url), shards=2, clock=clock)
    async with Database(shared_url, max_size=4) as database:
        world = World(database, environment, clock=clock, server=broker)
        queue = await expire_all(world, 60, keys=3)
        for _ in range(2):
            action = await world.work(await world.start(redrive(canary=2, patch=PATCH)))
            await take_in_turn(world, queue, limit=2)
            clock.advance(1000)
            await world.runner.step(action.id)
            await world.runner.step(action.id)
            by_key = defaultdict(list)
            for n in await fail_all(world, queue):
                by_key[n % 3].append(n)
            assert all(order == sorted(order) for order in by_key.values())
            clock.advance(1000)
            await world.work(action)
    await broker.aclose()


async def test_a_replay_by_hand_does_not_count_for_the_redrive_before_it(world: World) -> None:
    queue = await expire_all(world, 1)
    action = await world.work(await world.start(redrive()))
    await fail_all(world, queue)
    (again,) = await world.newest(queue)
    await world.letters.redrive(queue, again.id, by="ann")
    await fail_all(world, queue)
    assert (await world.bulk_actions.find(world.environment, action.id)).died_again == 1


async def test_a_canary_that_died_again_still_goes_first_in_the_next_redrive(world: World) -> None:
    queue = await expire_all(world, 20)
    action = await world.work(await world.start(redrive(canary=3)))
    world.clock.advance(50)
    assert await fail_all(world, queue) == [0, 1, 2]
    world.clock.advance(1000)
    assert (await world.work(action)).state is BulkActionState.STOPPED_BY_CANARY
    await world.work(await world.start(redrive()))
    assert await fail_all(world, queue) == list(range(20))


async def test_a_resumed_redrive_sends_the_canaries_that_died_again_first(world: World) -> None:
    queue = await expire_all(world, 20)
    action = await world.work(await world.start(redrive(canary=3)))
    await fail_all(world, queue)
    world.clock.advance(1000)
    assert (await world.work(action)).state is BulkActionState.STOPPED_BY_CANARY
    await world.bulk_actions.resume(world.environment, action.id, by="ann")
    action = await world.work(action)
    deliveries = await take_in_turn(world, queue)
    assert numbers([delivery.payload for delivery in deliveries]) == [0, 1, 2]
    world.clock.advance(1000)
    action = await world.work(action)
    assert numbers(await waiting_in_turn(world, queue)) == list(range(3, 20))
    assert (action.state, action.done, action.matched, action.scanned) == (
        BulkActionState.COMPLETED,
        23,
        23,
        23,
    )


async def take_in_turn(world: World, queue: QueueRef, *, limit: int = 100) -> list[Delivery]:
    """Hand out and acknowledge everything, one of a key at a time."""
    seen: list[Delivery] = []
    while deliveries := await world.broker.dequeue(queue, consumer="test", limit=limit):
        seen += deliveries
        await world.broker.ack([delivery.lease for delivery in deliveries])
    return seen


async def waiting_in_turn(world: World, queue: QueueRef) -> list[bytes]:
    return [delivery.payload for delivery in await take_in_turn(world, queue)]


async def test_what_died_for_another_reason_since_is_not_part_of_a_resumed_redrive(world: World) -> None:
    queue = await expire_all(world, 6)
    action = await world.work(await world.start(redrive(canary=2)))
    await fail_all(world, queue)
    await world.push(queue, {"n": 99}, key="k0")
    await fail_all(world, queue)
    world.clock.advance(1000)
    await world.work(action)
    await world.bulk_actions.resume(world.environment, action.id, by="ann")
    await world.work(action)
    await take_in_turn(world, queue)
    world.clock.advance(1000)
    assert (await world.work(action)).state is BulkActionState.COMPLETED
    assert numbers(await waiting_in_turn(world, queue)) == [2, 3, 4, 5]
    (left,) = await world.newest(queue)
    assert json.loads(left.payload) == {"n": 99}
    await world.check_exact()


async def test_deaths_before_a_resume_do_not_stop_the_redrive_once_more(world: World) -> None:
    queue = await expire_all(world, 30)
    action = await world.work(await world.start(redrive(canary=2, rate_per_s=20)))
    await take_in_turn(world, queue)
    world.clock.advance(1000)
    await world.work(action)
    assert await fail_all(world, queue) == list(range(2, 12))
    world.clock.advance(1000)
    assert (await world.work(action)).state is BulkActionState.STOPPED_BY_CANARY
    await world.bulk_actions.resume(world.environment, action.id, by="ann")
    seen: list[int] = []
    for _ in range(20):
        world.clock.advance(1000)
        action = await world.work(action)
        seen += numbers(await waiting_in_turn(world, queue))
    assert (action.state, seen) == (BulkActionState.COMPLETED, list(range(2, 30)))


async def test_the_order_is_kept_when_the_parents_are_forgotten(world: World) -> None:
    queue = await expire_all(world, 40)
    await world.work(await world.start(redrive()))
    await world.rows(
        "DELETE FROM weir.dead_letters WHERE replayed_at_ms IS NOT NULL AND %s <> '' RETURNING 1"
    )
    assert await fail_all(world, queue) == list(range(40))
    await world.work(await world.start(redrive()))
    assert await fail_all(world, queue) == list(range(40))


async def test_lists_show_letters_by_their_original_order_and_page_through_all(world: World) -> None:
    queue = await expire_all(world, 10)
    for letter in (await world.newest(queue))[::3]:
        await world.letters.redrive(queue, letter.id, by="ann")
    await fail_all(world, queue)
    found, before = [], None
    while page := await world.newest(queue, before=before, limit=3):
        found += page
        before = page[-1].position
    assert numbers([letter.payload for letter in found]) == list(range(9, -1, -1))


class Ledger:
    """What was handed out: within one redrive, each key in its original order."""

    def __init__(self) -> None:
        self._last: dict[str | None, int] = {}

    def new_walk(self) -> None:
        self._last.clear()

    def hand_out(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            n = json.loads(delivery.payload)["n"]
            assert n > self._last.get(delivery.key, -1), (delivery.key, n, self._last)
            self._last[delivery.key] = n


async def settle_at_random(
    world: World, queue: QueueRef, ledger: Ledger, *, dice: random.Random, deadly: float
) -> tuple[int, int]:
    """Hand everything out; some die again in this very millisecond. How many lived and died."""
    lived = died = 0
    while deliveries := await world.broker.dequeue(queue, consumer="test", limit=dice.randint(1, 9)):
        ledger.hand_out(deliveries)
        dying = [one for one in deliveries if dice.random() < deadly]
        living = [one for one in deliveries if one not in dying]
        await world.broker.nack([Failure(lease=one.lease, error=f"bad {dice.random()}") for one in dying])
        await world.broker.ack([one.lease for one in living])
        lived, died = lived + len(living), died + len(dying)
    await world.move()
    return lived, died


async def redrive_in_steps(
    world: World, queue: QueueRef, ledger: Ledger, *, dice: random.Random, deadly: float
) -> int:
    """One redrive with a canary, a rate, perhaps a patch; stopped ones are resumed. How many lived."""
    options = {"canary": dice.choice([0, 1, 4]), "rate_per_s": dice.choice([None, 6, 40])}
    action = await world.start(redrive(**options, patch=dice.choice([None, PATCH])))
    ledger.new_walk()
    lived_in_all = 0
    for _ in range(200):
        action = await world.work(action)
        lived, _ = await settle_at_random(world, queue, ledger, dice=dice, deadly=deadly)
        lived_in_all += lived
        world.clock.advance(1000)
        if action.state is BulkActionState.STOPPED_BY_CANARY:
            if dice.random() < 0.3:
                break
            action = await world.bulk_actions.resume(world.environment, action.id, by="ann")
            ledger.new_walk()
        elif action.state.over:
            break
    await drain(world, queue, action)
    return lived_in_all


async def drain(world: World, queue: QueueRef, action: BulkAction) -> None:
    """What is still in the queue dies, so that the next redrive begins with everything that is left."""
    assert action.state.over, action
    await fail_all(world, queue)


async def check_order(world: World, *, seed: int, messages: int, keys: int, rounds: int) -> None:
    dice, ledger = random.Random(seed), Ledger()
    queue = await expire_all(world, messages, keys=keys)
    alive = messages
    for deadly in rounds_of(dice, rounds):
        alive -= await redrive_in_steps(world, queue, ledger, dice=dice, deadly=deadly)
        assert (await world.summary())["orders"] == alive
    await world.check_exact()
    ledger.new_walk()
    await world.work(await world.start(redrive()))
    left = await take_in_turn(world, queue)
    ledger.hand_out(left)
    assert len(left) == alive


def rounds_of(dice: random.Random, rounds: int) -> Iterator[float]:
    for _ in range(rounds):
        yield dice.choice([1.0, 0.9, 0.6, 0.3])


@pytest.mark.parametrize("seed", range(3))
async def test_every_key_keeps_its_order_through_random_redrives(world: World, seed: int) -> None:
    await check_order(world, seed=seed, messages=40, keys=5, rounds=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
async def test_every_key_keeps_its_order_through_random_redrives_at_length(world: World, seed: int) -> None:
    await check_order(world, seed=seed, messages=200, keys=7, rounds=6)
