"""The mover carries every death to PostgreSQL exactly once, whatever dies with it."""

from __future__ import annotations

import pytest
from tests.deadletters.world import World

from weir.broker.broker import Broker
from weir.deadletters.groups import list_groups
from weir.deadletters.mover import Mover
from weir.errors import BrokerUnavailable
from weir.model.ids import new_message_id
from weir.model.message import Failure, NewMessage


async def test_a_death_is_stored_whole_and_counted(world: World) -> None:
    queue = await world.define("orders", max_attempts=1)
    message = NewMessage(
        payload=b"\x00\xffraw", headers={"a": "b\x00c"}, key="k é", priority=7, idempotency_key="once"
    )
    await world.broker.enqueue(queue, [message])
    await world.die(queue, error="bad\x00thing 12")
    await world.move()

    letter = await world.letters.find(queue, message.id)
    assert (letter.payload, letter.headers["a"], letter.key) == (b"\x00\xffraw", "b\x00c", "k é")
    assert (letter.priority, letter.idempotency_key, letter.attempts) == (7, "once", 1)
    assert letter.error == "bad�thing 12"
    assert letter.exhausted
    assert letter.dead
    assert await world.summary() == {"orders": 1}
    assert await world.broker.take_dead(world.shard) == []


async def test_moving_the_same_death_again_changes_nothing(lone_world: World) -> None:
    world = lone_world
    queue = await world.define("orders")
    await world.push(queue, *range(5))
    await world.die(queue)
    lost = DropsNothing(world.broker)
    with pytest.raises(BrokerUnavailable):
        await Mover(lost, world.database, clock=world.clock).move(world.shard)
    assert await world.summary() == {"orders": 5}
    assert len(await world.broker.take_dead(world.shard)) == 5

    await Mover(world.broker, world.database, clock=world.clock).move(world.shard)
    assert await world.broker.take_dead(world.shard) == []
    await world.check_exact()
    assert await world.summary() == {"orders": 5}


async def test_a_letter_that_was_purged_before_the_outbox_heard_of_it_does_not_come_back(
    lone_world: World,
) -> None:
    world = lone_world
    queue = await world.define("orders")
    (letter_id,) = await world.push(queue, {"n": 1})
    await world.die(queue)
    with pytest.raises(BrokerUnavailable):
        await Mover(DropsNothing(world.broker), world.database, clock=world.clock).move(world.shard)
    await world.letters.delete(queue, letter_id, by="test")

    await Mover(world.broker, world.database, clock=world.clock).move(world.shard)
    assert await world.summary() == {"orders": 0}
    await world.check_exact()


async def test_only_one_mover_works_on_a_shard_at_a_time(world: World) -> None:
    queue = await world.define("orders")
    await world.push(queue, 1)
    await world.die(queue)
    async with world.database.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(7764, %s)", (world.shard,))
        assert (await world.mover.move(world.shard)).taken == 0
    assert (await world.mover.move(world.shard)).stored == 1


async def test_alike_errors_are_one_group_over_the_queues_that_it_touches(world: World) -> None:
    orders, mails = await world.define("orders"), await world.define("mails")
    await world.kill(orders, 1, 2, error="connect to 10.0.0.1:80 refused")
    world.clock.advance(60_000)
    await world.kill(mails, 3, error="connect to 10.0.0.9:80 refused")
    await world.kill(mails, 4, error="no such user")

    first, second = await list_groups(world.database, world.environment, now_ms=world.clock.now_ms())
    assert (first.template, first.dead_count, first.queues) == (
        "connect to <address> refused",
        3,
        ("orders", "mails"),
    )
    assert first.last_seen_ms - first.first_seen_ms == 60_000
    assert first.rate_per_h > second.rate_per_h > 0
    assert second.sample_error == "no such user"
    only = await list_groups(world.database, world.environment, now_ms=world.clock.now_ms(), queue="orders")
    assert [group.dead_count for group in only] == [2]


async def test_errors_without_end_share_one_last_group(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.deadletters.groups.MAX_GROUPS", 2)
    queue = await world.define("orders")
    for word in ("alpha", "beta", "gamma", "delta"):
        await world.kill(queue, word, error=f"no {word}")
    groups = await list_groups(world.database, world.environment, now_ms=world.clock.now_ms())
    assert sorted((group.fingerprint == "other", group.dead_count) for group in groups) == [
        (False, 1),
        (False, 1),
        (True, 2),
    ]
    await world.check_exact()


async def test_a_death_says_whose_replay_it_was_only_if_that_is_true(world: World) -> None:
    queue = await world.define("orders")
    (victim,) = await world.kill(queue, {"n": 1})
    forged = NewMessage(payload=b"{}", id=new_message_id(), headers={"weir-replay-of": victim})
    await world.broker.enqueue(queue, [forged])
    await world.die(queue)
    await world.move()
    assert (await world.letters.find(queue, forged.id)).replay_of is None
    assert (await world.letters.find(queue, victim)).replay_result is None


async def test_rejected_messages_keep_their_reason(world: World) -> None:
    queue = await world.define("orders", max_attempts=5)
    (letter_id,) = await world.push(queue, 1)
    (delivery,) = await world.broker.dequeue(queue, consumer="test")
    await world.broker.dead_letter([Failure(lease=delivery.lease, error="not for me")])
    await world.move()
    letter = await world.letters.find(queue, letter_id)
    assert (letter.reason, letter.attempts, letter.exhausted) == ("rejected", 1, False)


class DropsNothing:
    """A broker whose mover is killed between its commit and the outbox."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __getattr__(self, name: str) -> object:
        return getattr(self._broker, name)

    async def drop_dead(self, shard: int, message_ids: object) -> None:
        raise BrokerUnavailable("killed here")
