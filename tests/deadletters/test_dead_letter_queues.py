"""Dead letter queues: how long dead letters are kept, and deaths that arrive as messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.deadletters.world import World

from weir.control.queue_definitions import QueueDefinitions
from weir.deadletters import copier, retention
from weir.deadletters.bulk_actions import BulkActionKind, NewBulkAction
from weir.deadletters.filters import Filter
from weir.errors import BrokerUnavailable
from weir.model.message import Delivery, Failure, NewMessage
from weir.model.names import QueueRef
from weir.spec.ir import EnqueueTo, Ordering

DAY_MS = 86_400_000
NOTIFY = EnqueueTo(queue="notices")


async def pair(world: World, **options: Any) -> tuple[QueueRef, QueueRef]:
    """The queue `orders`, and `parked` for its dead letters."""
    parked = await world.define("parked", **options)
    return await world.define("orders", dead_letter_queue="parked"), parked


async def copied(world: World) -> None:
    world.copier._look_at.clear()
    while await world.copier.run_round():
        pass


async def pop(world: World, queue: QueueRef, *, limit: int = 100) -> list[Delivery]:
    return await world.broker.dequeue(queue, consumer="reader", limit=limit)


def documents(deliveries: list[Delivery]) -> list[dict[str, Any]]:
    return [json.loads(delivery.payload) for delivery in deliveries]


async def test_a_death_arrives_in_a_dead_letter_queue_that_has_work_to_do(world: World) -> None:
    orders, parked = await pair(world, action=NOTIFY)
    (letter_id,) = await world.kill(orders, {"n": 1, "big": 10**30}, error="no such order 17")
    await copied(world)
    (copy,) = await pop(world, parked)
    assert json.loads(copy.payload) == {
        "original_message": {"n": 1, "big": 10**30},
        "failed_at": "2023-11-14T22:13:20.000Z",
        "error": "no such order 17",
        "attempts": 1,
    }
    assert copy.idempotency_key == letter_id == copy.headers["weir-dead-letter"]
    assert (copy.headers["weir-died-in"], copy.headers["weir-death-reason"]) == ("orders", "attempts")
    assert await world.summary() == {"orders": 1}
    await world.broker.ack([copy.lease])
    await copied(world)
    assert await pop(world, parked) == []
    assert await world.summary() == {"orders": 1}
    await world.check_exact()


async def test_a_dead_letter_queue_that_nobody_reads_stays_empty_until_it_is_popped(world: World) -> None:
    orders, parked = await pair(world)
    await world.kill(orders, *range(3), error="before")
    await copied(world)
    assert (await world.broker.state(parked)).depth == 0
    assert await pop(world, parked) == []
    await world.kill(orders, *range(3, 6), error="after")
    await copied(world)
    found = documents(await pop(world, parked))
    assert [one["original_message"]["payload"] for one in found] == [0, 1, 2, 3, 4, 5]
    assert [one["error"] for one in found] == ["before"] * 3 + ["after"] * 3


async def test_a_redis_that_lost_everything_does_not_end_the_copies(world: World) -> None:
    orders, parked = await pair(world)
    await pop(world, parked)
    await world.kill(orders, 1)
    await copied(world)
    fresh = World(world.database, world.environment)
    orders, parked = await pair(fresh)
    await fresh.kill(orders, 2)
    await copied(fresh)
    assert (await fresh.broker.state(parked)).depth == 1


async def test_a_full_dead_letter_queue_holds_up_nobody_and_gets_the_rest_later(world: World) -> None:
    orders, parked = await pair(world, action=NOTIFY, max_depth=4)
    await world.kill(orders, *range(10))
    assert await world.summary() == {"orders": 10}
    seen: list[int] = []
    for _ in range(4):
        await copied(world)
        deliveries = await pop(world, parked)
        seen += [one["original_message"]["payload"] for one in documents(deliveries)]
        await world.broker.ack([delivery.lease for delivery in deliveries])
        await world.kill(orders, 99)
    assert seen == [*range(10), 99, 99, 99]


async def test_copies_go_out_while_not_too_many_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copier, "MAX_WAITING", 5)
    monkeypatch.setattr(copier, "BATCH", 5)
    orders, parked = await pair(world, action=NOTIFY)
    await world.kill(orders, *range(12))
    await copied(world)
    assert (await world.broker.state(parked)).depth == 5
    await world.broker.ack([delivery.lease for delivery in await pop(world, parked)])
    await copied(world)
    assert (await world.broker.state(parked)).depth == 5


async def test_a_letter_that_went_before_its_copy_is_not_copied(world: World) -> None:
    orders, parked = await pair(world, action=NOTIFY)
    ids = await world.kill(orders, *range(4))
    await world.letters.redrive(orders, ids[0], by="ann")
    await world.letters.delete(orders, ids[2], by="ann")
    await copied(world)
    found = documents(await pop(world, parked))
    assert [one["original_message"]["payload"] for one in found] == [1, 3]


async def test_a_replay_that_dies_again_is_told_again(world: World) -> None:
    orders, parked = await pair(world, action=NOTIFY)
    await world.kill(orders, {"n": 1})
    await copied(world)
    await world.work(
        await world.start(NewBulkAction(kind=BulkActionKind.REDRIVE, filter=Filter(queue="orders")))
    )
    await world.die(orders, error="again")
    await world.move()
    await copied(world)
    first, second = await pop(world, parked)
    assert json.loads(second.payload)["error"] == "again"
    assert first.headers["weir-dead-letter"] != second.headers["weir-dead-letter"]
    assert "weir-replay-of" not in second.headers


@pytest.mark.parametrize("ending", ["dies", "is rejected", "expires", "lapses"])
async def test_a_copy_that_ends_badly_is_no_second_letter(world: World, ending: str) -> None:
    await world.define("beyond", action=NOTIFY)
    orders, parked = await pair(world, action=NOTIFY, dead_letter_queue="beyond", message_ttl_ms=5000)
    await world.kill(orders, 1)
    await copied(world)
    if ending != "expires":
        (copy,) = await world.broker.dequeue(parked, consumer="reader", lease_ms=1000)
    if ending == "dies":
        await world.broker.nack([Failure(lease=copy.lease, error="bad reader")])
    elif ending == "is rejected":
        await world.broker.dead_letter([Failure(lease=copy.lease, error="bad copy")])
    world.clock.advance(5000)
    await world.broker.sweep(world.shard)
    assert len(await world.broker.take_dead(world.shard)) == 1
    await world.move()
    assert await world.broker.take_dead(world.shard) == []
    await copied(world)
    assert (await world.broker.state(world.environment.queue("beyond"))).depth == 0
    assert await world.summary() == {"orders": 1}
    await world.check_exact()


async def test_a_message_of_its_own_that_dies_in_a_dead_letter_queue_is_a_letter(world: World) -> None:
    _, parked = await pair(world, action=NOTIFY)
    forged = NewMessage(payload=b"1", headers={"weir-dead-letter": "018bcfe5-6800-7000-8000-000000000000"})
    await world.broker.enqueue(parked, [forged, NewMessage(payload=b"2", headers={"weir-dead-letter": "x"})])
    await world.die(parked)
    await world.move()
    assert await world.summary() == {"parked": 2}


async def test_a_lost_transaction_copies_nothing_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    orders, parked = await pair(world, action=NOTIFY)
    await world.kill(orders, *range(3))

    class KilledHere(BaseException):
        """As kill -9 does, it leaves no time for anything."""

    with monkeypatch.context() as patch:
        patch.setattr(copier, "execute", killed_here_after_begin(copier.execute, KilledHere))
        with pytest.raises(KilledHere):
            await world.copier.run_round()
    deliveries = await pop(world, parked)
    await world.broker.ack([delivery.lease for delivery in deliveries])
    await copied(world)
    assert (len(deliveries), await pop(world, parked)) == (3, [])


def killed_here_after_begin(execute: Any, error: type[BaseException]) -> Any:
    async def instead(connection: Any, query: Any, **values: Any) -> Any:
        if query.name == "save_copied":
            raise error
        return await execute(connection, query, **values)

    return instead


async def test_a_broker_that_is_away_delays_the_copies(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    orders, parked = await pair(world, action=NOTIFY)
    await world.kill(orders, 1)

    async def away(*_: object, **__: object) -> None:
        raise BrokerUnavailable("Redis is away")

    with monkeypatch.context() as patch:
        patch.setattr(world.broker, "enqueue", away)
        assert await world.copier.run_round() is False
    await copied(world)
    assert len(await pop(world, parked)) == 1


async def test_copies_keep_the_key_and_the_order_of_deaths(world: World) -> None:
    orders, parked = await pair(world, action=NOTIFY, ordering=Ordering.PER_KEY)
    for n in range(6):
        await world.push(orders, {"n": n}, key=f"k{n % 2}")
    await world.die(orders)
    await world.move()
    await copied(world)
    seen: dict[str | None, list[int]] = {"k0": [], "k1": []}
    while deliveries := await pop(world, parked):
        for delivery in deliveries:
            seen[delivery.key].append(json.loads(delivery.payload)["original_message"]["n"])
        await world.broker.ack([delivery.lease for delivery in deliveries])
    assert seen == {"k0": [0, 2, 4], "k1": [1, 3, 5]}


async def test_two_copiers_share_the_work(world: World) -> None:
    orders, parked = await pair(world, action=NOTIFY)
    await world.kill(orders, *range(30))
    other = copier.DeadLetterCopier(world.broker, world.database)
    for _ in range(3):
        await world.copier.run_round()
        await other.run_round()
    assert (await world.broker.state(parked)).odometers["enqueued"] == 30


@pytest.mark.parametrize(
    ("payload", "headers", "original"),
    [
        (b' {"a": 1.50} ', {}, {"a": 1.5}),
        (b"[1, 2]", {}, {"payload": [1, 2]}),
        (b"plain words", {}, {"payload": "plain words"}),
        (b"12", {"content-type": "text/plain"}, {"payload": "12"}),
        (b"\xff\x00", {}, {"payload_base64": "/wA="}),
        (b'{"a": NaN}', {}, {"payload": '{"a": NaN}'}),
        (
            b'{"incident": 7}',
            {"weir-hook": "PagerDuty", "weir-source-ip": "10.0.0.1", "weir-received-at-ms": "0", "x": "y"},
            {
                "payload": {"incident": 7},
                "headers": {"x": "y"},
                "source_ip": "10.0.0.1",
                "received_at": "2023-11-14T22:13:20.000Z",
                "webhook": "PagerDuty",
            },
        ),
    ],
)
async def test_the_original_message_is_an_object_whatever_it_was(
    world: World, payload: bytes, headers: dict[str, str], original: dict[str, Any]
) -> None:
    orders, parked = await pair(world, action=NOTIFY)
    await world.broker.enqueue(orders, [NewMessage(payload=payload, headers=headers)])
    await world.die(orders)
    await world.move()
    await copied(world)
    (copy,) = await pop(world, parked)
    assert json.loads(copy.payload)["original_message"] == original
    assert copy.headers["content-type"] == "application/json"
    assert "weir-hook" not in copy.headers


async def test_originals_that_leave_no_room_are_left_out_and_say_so(world: World) -> None:
    orders, parked = await pair(world, action=NOTIFY)
    large = b'{"a": "%s"}' % (b"x" * (1_048_576 - 9))
    nearly = b'{"a": "%s"}' % (b"x" * (1_048_576 - 5_000))
    messages = [NewMessage(payload=large), NewMessage(payload=nearly, headers={"h": "x" * 65_500})]
    await world.broker.enqueue(orders, messages)
    await world.die(orders, error="e" * 16_000)
    await world.move()
    await copied(world)
    first, second = await pop(world, parked)
    assert json.loads(first.payload)["original_message"] is None
    assert first.headers["weir-original-bytes"] == str(len(large))
    assert json.loads(second.payload)["original_message"] == json.loads(nearly)
    assert json.loads(second.payload)["error"] == "e" * 1_000
    assert "h" not in second.headers


async def test_letters_older_than_a_written_max_age_are_deleted_exactly(lone_world: World) -> None:
    world = lone_world
    orders, _ = await pair(world, max_age_ms=7 * DAY_MS)
    other = await world.define("others")
    await world.kill(other, 0)
    for _ in range(2):
        await world.kill(orders, *range(600))
    world.clock.advance(DAY_MS)
    await world.kill(orders, *range(3), error="later")
    world.clock.advance(6 * DAY_MS)
    assert await world.retention.run_round() == 0
    world.clock.advance(1)
    assert await world.retention.run_round() == 1_200
    assert await world.summary() == {"orders": 3, "others": 1}
    await world.check_exact()
    world.clock.advance(DAY_MS)
    assert await world.retention.run_round() == 3
    await world.check_exact()
    records = "SELECT action, target, details FROM weir.audit_log WHERE environment = %s ORDER BY id"
    entries = [row for row in await world.rows(records) if row["action"] == "dlq.aged"]
    assert [row["details"]["deleted"] for row in entries] == [1_000, 200, 3]
    assert entries[0]["details"] | {"deleted": 0} == {
        "dead_letter_queue": "parked",
        "max_age_ms": 7 * DAY_MS,
        "deleted": 0,
    }


async def test_queues_take_turns_in_retention_and_one_that_fails_keeps_no_other_from_it(
    lone_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = lone_world
    monkeypatch.setattr(retention, "BATCH", 2)
    orders, _ = await pair(world, max_age_ms=DAY_MS)
    others = {name: await world.define(name, dead_letter_queue="parked") for name in ("mails", "odd")}
    for queue in (orders, *others.values()):
        await world.kill(queue, *range(5))
    world.clock.advance(2 * DAY_MS)
    turns: list[str] = []
    delete = world.retention._delete

    async def watched(limited: Any, **options: Any) -> int:
        turns.append(limited.queue.queue)
        if limited.queue == others["odd"]:
            raise LookupError("nobody foresaw this")
        return await delete(limited, **options)

    monkeypatch.setattr(world.retention, "_delete", watched)
    assert await world.retention.run_round() == 10
    assert await world.summary() == {"orders": 0, "mails": 0, "odd": 5}
    assert turns.count("odd") == 1
    rest = [name for name in turns if name != "odd"]
    assert all(set(pair_of) == {"orders", "mails"} for pair_of in zip(rest[::2], rest[1::2], strict=True))


async def test_without_a_written_max_age_nothing_is_deleted(lone_world: World) -> None:
    world = lone_world
    orders, _ = await pair(world)
    await world.kill(orders, 1)
    await world.define("alone", max_age_ms=1)
    world.clock.advance(1000 * DAY_MS)
    assert await world.retention.run_round() == 0
    assert await world.summary() == {"orders": 1}


async def test_age_is_counted_by_the_clock_of_the_broker(lone_world: World) -> None:
    world = lone_world
    orders, _ = await pair(world, max_age_ms=DAY_MS)
    await world.kill(orders, 1)
    # The clock of this process is years ahead of the broker's, which stands at 2023.
    assert await world.retention.run_round() == 0


async def test_letters_that_a_redrive_has_locked_are_left_to_it(lone_world: World) -> None:
    world = lone_world
    orders, _ = await pair(world, max_age_ms=DAY_MS)
    ids = await world.kill(orders, *range(5))
    world.clock.advance(2 * DAY_MS)
    async with world.database.transaction() as connection:
        await connection.execute("SELECT FROM weir.dead_letters WHERE id = %s FOR UPDATE", (ids[1],))
        assert await world.retention.run_round() == 4
    assert await world.retention.run_round() == 1
    await world.check_exact()


async def test_lineage_outlives_the_age_of_dead_letters(lone_world: World) -> None:
    world = lone_world
    orders, _ = await pair(world, max_age_ms=DAY_MS)
    (letter_id,) = await world.kill(orders, 1)
    await world.letters.redrive(orders, letter_id, by="ann")
    world.clock.advance(2 * DAY_MS)
    assert await world.retention.run_round() == 0
    assert (await world.letters.find(orders, letter_id)).replay_id is not None


async def test_a_dead_letter_queue_of_another_name_goes_on_where_the_first_stopped(world: World) -> None:
    orders, parked = await pair(world, action=NOTIFY)
    await world.kill(orders, 1)
    await copied(world)
    second = await world.define("second", action=NOTIFY)
    await world.define("orders", dead_letter_queue="second")
    await world.kill(orders, 2)
    await copied(world)
    assert len(await pop(world, parked)) == 1
    (copy,) = await pop(world, second)
    assert json.loads(copy.payload)["original_message"] == {"payload": 2}


async def test_a_dead_letter_queue_that_is_gone_keeps_the_letters(world: World) -> None:
    orders, parked = await pair(world, action=NOTIFY)
    await world.broker.forget(parked)
    await world.kill(orders, 1)
    await copied(world)
    await QueueDefinitions(world.database).forget(parked)
    await copied(world)
    assert await world.summary() == {"orders": 1}
