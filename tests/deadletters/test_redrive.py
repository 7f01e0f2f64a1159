"""Redrives: what is meant goes back once, in order, and stops by itself when it does no good."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.deadletters.world import World, numbers, with_limits

from weir.control.queue_definitions import QueueDefinitions
from weir.deadletters.bulk_action_states import BulkActionState
from weir.deadletters.bulk_actions import BulkAction, BulkActionKind, NewBulkAction
from weir.deadletters.filters import Filter
from weir.errors import BrokerUnavailable, Conflict, InvalidInput, NotFound
from weir.model.ids import MessageId
from weir.model.message import Failure, NewMessage
from weir.spec.ir import MessageField, Ordering, QueueSpec


def redrive(**options: object) -> NewBulkAction:
    names = ("queue", "fingerprint", "reason", "died_from_ms", "died_to_ms", "expression")
    chosen = {name: options.pop(name) for name in names if name in options}
    return NewBulkAction(kind=BulkActionKind.REDRIVE, filter=Filter(**chosen), **with_limits(options))  # type: ignore[arg-type]


async def killed(world: World, count: int, *, error: str = "boom") -> None:
    queue = await world.define("orders")
    await world.kill(queue, *({"n": n} for n in range(count)), error=error)


async def test_a_redrive_sends_everything_back_once_and_keeps_the_lineage(world: World) -> None:
    await killed(world, 25)
    queue = world.environment.queue("orders")
    action = await world.work(await world.start(redrive(queue="orders")))
    assert (action.state, action.done, action.matched) == (BulkActionState.COMPLETED, 25, 25)
    assert await world.summary() == {"orders": 0}
    deliveries = await world.broker.dequeue(queue, consumer="test", limit=100)
    assert len(deliveries) == 25
    parent = await world.letters.find(queue, deliveries[0].headers["weir-replay-of"])
    assert parent.replay_id == deliveries[0].message_id
    assert parent.replay_task == action.id == deliveries[0].headers["weir-replay-task"]
    assert await world.letters.fate_of_replay(parent) == "waiting"
    await world.broker.ack([deliveries[0].lease])
    assert await world.letters.fate_of_replay(parent) == "acked"


async def test_a_redriven_message_keeps_its_own_priority(world: World) -> None:
    queue = await world.define("orders", priority=7)
    await world.broker.enqueue(queue, [NewMessage(payload=b"{}"), NewMessage(payload=b"{}", priority=1)])
    await world.die(queue)
    await world.move()
    await world.define("orders", priority=3)
    await world.work(await world.start(redrive(queue="orders")))
    assert [one.priority for one in await world.broker.dequeue(queue, consumer="test", limit=9)] == [7, 1]


async def test_a_dry_run_counts_and_touches_nothing(world: World) -> None:
    await killed(world, 12)
    new = redrive(queue="orders", expression="payload.n >= 5", dry_run=True)
    action = await world.work(await world.start(new))
    assert (action.state, action.matched, action.done) == (BulkActionState.COMPLETED, 7, 0)
    assert len(action.samples) == 7
    assert await world.summary() == {"orders": 12}
    assert await world.waiting(world.environment.queue("orders")) == []


async def test_a_dry_run_applies_the_patch_and_counts_what_it_would_skip(world: World) -> None:
    queue = await world.define("orders")
    fields = (MessageField(name="n", type="int"),)
    await QueueDefinitions(world.database).define(queue, QueueSpec(name="orders", message_type=fields))
    huge = NewMessage(payload=b'{"n": 0}', headers={"big": "x" * 65_530})
    await world.broker.enqueue(queue, [huge])
    await world.push(queue, *({"n": n} for n in range(5)), {"n": "six"}, {"m": 7})
    await world.die(queue)
    await world.move()
    patch = {"patch": '{"n": payload.n}'}
    dry = await world.work(await world.start(redrive(queue="orders", dry_run=True, **patch)))
    real = await world.work(await world.start(redrive(queue="orders", **patch)))
    assert (dry.scanned, dry.matched, dry.done, dry.skipped) == (8, 8, 0, 3)
    assert (real.scanned, real.matched, real.done, real.skipped) == (8, 8, 5, 3)
    assert (dry.problem, dry.note) == (real.problem, real.note)


async def test_a_dry_run_without_a_patch_counts_letters_that_no_queue_would_take(world: World) -> None:
    queue = await world.define("orders")
    await world.broker.enqueue(queue, [NewMessage(payload=b"1", headers={"big": "x" * 65_530})])
    await world.push(queue, 2, 3)
    await world.die(queue)
    await world.move()
    dry = await world.work(await world.start(redrive(queue="orders", dry_run=True)))
    assert (dry.matched, dry.skipped) == (3, 1)
    assert "headers" in str(dry.problem)


@pytest.mark.parametrize("kind", [BulkActionKind.REDRIVE, BulkActionKind.PURGE])
async def test_a_queue_that_nobody_knows_is_refused(world: World, kind: BulkActionKind) -> None:
    await killed(world, 1)
    new = NewBulkAction(kind=kind, filter=Filter(queue="ordres"))
    with pytest.raises(NotFound, match="there is no queue `ordres` here"):
        await world.start(new)
    defined = world.environment.queue("ordres")
    await QueueDefinitions(world.database).define(defined, QueueSpec(name="ordres"))
    assert (await world.work(await world.start(new))).state is BulkActionState.COMPLETED


@pytest.mark.parametrize("kind", [BulkActionKind.REDRIVE, BulkActionKind.PURGE])
async def test_everything_at_once_has_to_be_asked_for(world: World, kind: BulkActionKind) -> None:
    await killed(world, 3)
    with pytest.raises(InvalidInput, match="without a filter"):
        NewBulkAction(kind=kind, filter=Filter())
    with pytest.raises(InvalidInput, match="`all` goes without a filter"):
        NewBulkAction(kind=kind, filter=Filter(queue="orders"), everything=True)
    dry = await world.work(await world.start(NewBulkAction(kind=kind, filter=Filter(), dry_run=True)))
    assert dry.matched == 3
    action = await world.work(await world.start(NewBulkAction(kind=kind, filter=Filter(), everything=True)))
    assert action.done == 3


async def test_the_audit_log_says_what_a_task_was_asked_for(world: World) -> None:
    await killed(world, 1)
    patch = '{"n": 2}'
    await world.start(redrive(expression="attempts > 0", rate_per_s=5, canary=2, patch=patch))
    purge = NewBulkAction(kind=BulkActionKind.PURGE, filter=Filter(), everything=True)
    await world.start(purge)
    records = "SELECT action, details FROM weir.audit_log WHERE environment = %s ORDER BY id"
    first, second = await world.rows(records)
    assert first["details"] == {
        "filter": {"expression": "attempts > 0"},
        "rate_per_s": 5,
        "canary": 2,
        "patch": patch,
    }
    assert second["details"] == {"filter": {}, "all": True}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("payload.n == 3", [3]),
        ("payload.n % 2 == 0 && error.contains('boom')", [0, 2, 4]),
        ("queue == 'orders' && attempts == 1 && reason == 'attempts'", [0, 1, 2, 3, 4]),
        ("error.matches('nothing like this')", []),
        ("[payload.n].exists(number, number in [1, 3].map(odd, odd))", [1, 3]),
    ],
)
async def test_a_filter_in_cel_picks_the_letters(world: World, expression: str, expected: list[int]) -> None:
    await killed(world, 5)
    action = await world.work(await world.start(redrive(expression=expression)))
    assert action.state is BulkActionState.COMPLETED
    assert sorted(numbers(await world.waiting(world.environment.queue("orders")))) == expected
    await world.check_exact()


async def test_letters_that_an_expression_has_no_answer_for_stay_and_are_counted(world: World) -> None:
    queue = await world.define("orders")
    await world.kill(queue, {"n": 1}, {"other": 1}, "text")
    action = await world.work(await world.start(redrive(expression="payload.n == 1")))
    assert (action.done, action.skipped) == (1, 2)
    assert action.problem is not None
    assert await world.summary() == {"orders": 2}


async def test_fields_of_the_filter_narrow_it(world: World) -> None:
    orders, mails = await world.define("orders"), await world.define("mails")
    await world.kill(orders, {"n": 1}, error="refused by 10.0.0.1")
    world.clock.advance(1000)
    late_ms = world.clock.now_ms()
    await world.kill(orders, {"n": 2}, error="timeout after 30")
    await world.kill(mails, {"n": 3}, error="timeout after 99")
    found = await world.newest(mails)
    dry = await world.work(await world.start(redrive(fingerprint=found[0].fingerprint, dry_run=True)))
    assert (dry.matched, dry.expected) == (2, 2)
    dry = await world.work(await world.start(redrive(died_from_ms=late_ms, queue="orders", dry_run=True)))
    assert dry.matched == 1
    dry = await world.work(await world.start(redrive(reason="expired", dry_run=True)))
    assert (dry.matched, dry.scanned) == (0, 3)


async def test_a_filter_that_matches_nothing_completes_with_nothing(world: World) -> None:
    await killed(world, 2)
    for new in (redrive(fingerprint="0" * 16), redrive(expression="false")):
        action = await world.work(await world.start(new))
        assert (action.state, action.matched, action.done) == (BulkActionState.COMPLETED, 0, 0)


@pytest.mark.parametrize(
    "expression",
    [
        "payload.",
        "nobody.knows == 1",
        "payload.lines.exists(line, line == nobody)",
        "line == 1 || payload.lines.exists(line, line == 1)",
        "",
        "1 +",
        "x" * 2000,
        "payload == '\x00'",
    ],
)
def test_bad_cel_is_refused_before_anything_happens(expression: str) -> None:
    with pytest.raises(InvalidInput):
        redrive(expression=expression)


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("attempts", "int"),
        ("error + key", "string"),
        ("headers", "map<string, string>"),
        ("[error, key]", "list<string>"),
        ("size(payload.lines)", "int"),
        ("attempts > 3 ? 'yes' : 'no'", "string"),
        ("null", "null"),
    ],
)
def test_cel_that_cannot_be_true_or_false_is_refused_before_anything_happens(
    expression: str, kind: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"`{expression}` answers {kind}; expected true or")):
        redrive(expression=expression)


@pytest.mark.parametrize(
    "expression",
    ["payload.urgent", "payload", "false", "!payload.done", "'a' in headers", "payload.a ? true : payload.b"],
)
def test_cel_that_may_be_true_or_false_is_taken(expression: str) -> None:
    assert redrive(expression=expression).filter.expression == expression


async def test_an_older_task_with_such_a_filter_can_still_be_looked_up(world: World) -> None:
    new = redrive(expression="true")
    object.__setattr__(new.filter, "expression", "attempts")
    action = await world.bulk_actions.create(world.environment, new, by="test")
    assert action.filter.expression == "attempts"


def test_bad_numbers_and_reasons_are_refused() -> None:
    for options in (
        {"rate_per_s": 0},
        {"canary": -1},
        {"canary": 5000},
        {"canary_tolerance": 1.5},
        {"reason": "bored"},
        {"died_from_ms": 2, "died_to_ms": 1},
        {"patch": "payload +"},
    ):
        with pytest.raises(InvalidInput):
            redrive(**options)


async def test_what_dies_after_the_start_is_not_redriven_in_the_same_task(world: World) -> None:
    await killed(world, 3)
    action = await world.start(redrive(queue="orders"))
    await killed(world, 4)
    action = await world.work(action)
    assert action.done == 3
    assert await world.summary() == {"orders": 4}


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.FIFO])
async def test_ordered_queues_are_replayed_in_their_original_order(world: World, ordering: Ordering) -> None:
    queue = await world.define("orders", ordering=ordering)
    for n in range(30):
        world.clock.advance(1)
        await world.push(queue, {"n": n}, key=f"k{n % 3}")
    died = 0
    while died < 30:
        died += len(await world.die(queue))
    # Half of them, in any order, are stored by another batch than the rest.
    await world.move()
    action = await world.work(await world.start(redrive(queue="orders", rate_per_s=14)), steps=1)
    for _ in range(10):
        world.clock.advance(1000)
        await world.runner.step(action.id)
    seen: dict[str | None, list[int]] = {}
    while deliveries := await world.broker.dequeue(queue, consumer="test", limit=100):
        for delivery in deliveries:
            seen.setdefault(delivery.key, []).append(json.loads(delivery.payload)["n"])
        await world.broker.ack([delivery.lease for delivery in deliveries])
    assert sum(len(order) for order in seen.values()) == 30
    assert all(order == sorted(order) for order in seen.values())


async def test_the_rate_is_kept(world: World) -> None:
    await killed(world, 20)
    action = await world.work(await world.start(redrive(queue="orders", rate_per_s=10)))
    assert action.done == 5
    for expected in (10, 15, 20):
        world.clock.advance(499)
        assert await world.runner.step(action.id) is None
        world.clock.advance(1)
        assert (await world.work(action)).done == expected


async def test_pause_resume_and_cancel(world: World) -> None:
    await killed(world, 20)
    action = await world.work(await world.start(redrive(queue="orders", rate_per_s=10)))
    assert (
        await world.bulk_actions.pause(world.environment, action.id, by="ann")
    ).state is BulkActionState.PAUSED
    world.clock.advance(5000)
    assert await world.runner.step(action.id) is None
    await world.bulk_actions.resume(world.environment, action.id, by="ann")
    assert (await world.work(action)).done == 10
    assert (
        await world.bulk_actions.cancel(world.environment, action.id, by="ann")
    ).state is BulkActionState.CANCELLED
    world.clock.advance(5000)
    assert await world.runner.step(action.id) is None
    assert await world.summary() == {"orders": 10}
    for change in (world.bulk_actions.pause, world.bulk_actions.resume, world.bulk_actions.cancel):
        with pytest.raises(Conflict):
            await change(world.environment, action.id, by="ann")
    records = "SELECT action, actor FROM weir.audit_log WHERE environment = %s ORDER BY id"
    actions = [(row["action"], row["actor"]) for row in await world.rows(records)]
    assert actions == [
        ("dlq.redrive", "test"),
        ("dlq.task.paused", "ann"),
        ("dlq.task.running", "ann"),
        ("dlq.task.cancelled", "ann"),
    ]


async def test_a_task_of_another_environment_does_not_exist(world: World) -> None:
    await killed(world, 1)
    action = await world.start(redrive(queue="orders"))
    other = type(world.environment)(organization="someone", project="else", environment="here")
    with pytest.raises(NotFound):
        await world.bulk_actions.find(other, action.id)
    with pytest.raises(InvalidInput):
        await world.bulk_actions.find(world.environment, "no uuid")


async def canaries(world: World, **options: object) -> BulkAction:
    await killed(world, 50)
    return await world.work(await world.start(redrive(queue="orders", canary=4, **options)))


async def test_a_redrive_whose_cause_persists_stops_at_its_canary(world: World) -> None:
    action = await canaries(world)
    assert (action.done, action.canary_state) == (4, "watching")
    await world.die(world.environment.queue("orders"))
    await world.move()
    world.clock.advance(1000)
    action = await world.work(action)
    assert (action.state, action.done, action.died_again) == (BulkActionState.STOPPED_BY_CANARY, 4, 4)
    assert action.note == "4 of 4 canaries died again; at most 0 may"
    assert await world.summary() == {"orders": 50}
    await world.check_exact()


async def test_a_canary_that_is_dead_but_not_yet_moved_is_not_mistaken_for_a_success(world: World) -> None:
    action = await canaries(world)
    await world.die(world.environment.queue("orders"))
    world.clock.advance(1000)
    assert (await world.work(action)).canary_state == "watching"


async def test_a_canary_that_lives_lets_the_rest_go(world: World) -> None:
    action = await canaries(world)
    queue = world.environment.queue("orders")
    deliveries = await world.broker.dequeue(queue, consumer="test", limit=10)
    world.clock.advance(1000)
    assert (await world.work(action)).done == 4
    await world.broker.ack([delivery.lease for delivery in deliveries])
    world.clock.advance(1000)
    action = await world.work(action)
    assert (action.state, action.done) == (BulkActionState.COMPLETED, 50)
    assert await world.summary() == {"orders": 0}


async def test_a_tolerated_share_of_canaries_may_die(world: World) -> None:
    action = await canaries(world, canary_tolerance=0.25)
    queue = world.environment.queue("orders")
    first, *rest = await world.broker.dequeue(queue, consumer="test", limit=10)
    await world.broker.nack([Failure(lease=first.lease, error="still bad")])
    await world.broker.ack([delivery.lease for delivery in rest])
    await world.move()
    world.clock.advance(1000)
    action = await world.work(action)
    assert (action.state, action.done) == (BulkActionState.COMPLETED, 50)


async def test_canaries_that_nobody_works_on_stop_the_redrive_when_patience_ends(world: World) -> None:
    action = await canaries(world, canary_patience_ms=60_000)
    world.clock.advance(60_000)
    action = await world.work(action)
    assert action.state is BulkActionState.STOPPED_BY_CANARY
    assert "neither done nor dead" in str(action.note)
    resumed = await world.bulk_actions.resume(world.environment, action.id, by="ann")
    assert resumed.canary_state == "sending"
    assert (await world.work(action)).done == 8


async def test_a_redrive_past_its_canary_still_stops_when_too_many_die(world: World) -> None:
    action = await canaries(world, rate_per_s=20)
    queue = world.environment.queue("orders")
    deliveries = await world.broker.dequeue(queue, consumer="test", limit=10)
    await world.broker.ack([delivery.lease for delivery in deliveries])
    world.clock.advance(1000)
    action = await world.work(action)
    assert action.done == 14
    await world.die(queue)
    await world.move()
    world.clock.advance(1000)
    action = await world.work(action)
    assert (action.state, action.done) == (BulkActionState.STOPPED_BY_CANARY, 14)
    assert await world.summary() == {"orders": 46}


async def test_a_redrive_that_is_killed_after_sending_resumes_without_sending_twice(world: World) -> None:
    await killed(world, 30)
    action = await world.start(redrive(queue="orders", rate_per_s=20))
    await world.runner.step(action.id)
    world.clock.advance(1000)

    async def killed_here(*_: object, **__: object) -> None:
        raise KilledHere

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weir.deadletters.bulk_action_batch.settle", killed_here)
        with pytest.raises(KilledHere):
            await world.runner.step(action.id)
    assert await world.summary() == {"orders": 20}
    assert await world.runner.step(action.id) is None
    world.clock.advance(240_000)
    queue, seen = world.environment.queue("orders"), []
    for _ in range(10):
        # Workers finish what went out before the redrive goes on, so only its own memory can stop it.
        deliveries = await world.broker.dequeue(queue, consumer="test", limit=100)
        seen += numbers([delivery.payload for delivery in deliveries])
        await world.broker.ack([delivery.lease for delivery in deliveries])
        await world.runner.step(action.id)
        world.clock.advance(1000)
    done = await world.bulk_actions.find(world.environment, action.id)
    assert (done.state, done.done) == (BulkActionState.COMPLETED, 30)
    assert sorted(seen) == list(range(30))
    await world.check_exact()


class KilledHere(SystemExit):
    """As kill -9 does, it leaves no time for anything."""


async def test_a_full_queue_makes_the_redrive_wait_for_room(world: World) -> None:
    queue = await world.define("orders", max_depth=10)
    for start in (0, 10):
        await world.kill(queue, *({"n": n} for n in range(start, start + 10)))
    action = await world.work(await world.start(redrive(queue="orders")))
    assert (action.done, action.note) == (10, "the queue `orders` is full; waiting for room")
    await world.check_exact()
    world.clock.advance(1000)
    assert (await world.work(action)).done == 10
    assert len(await world.waiting(queue)) == 10
    world.clock.advance(1000)
    action = await world.work(action)
    assert (action.state, action.done, action.scanned, action.matched) == (
        BulkActionState.COMPLETED,
        20,
        20,
        20,
    )
    assert len(await world.waiting(queue)) == 10


async def test_a_broker_that_is_away_postpones_the_redrive(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await killed(world, 3)
    action = await world.start(redrive(queue="orders"))

    async def away(*_: object, **__: object) -> None:
        raise BrokerUnavailable("Redis is away")

    with monkeypatch.context() as patch:
        patch.setattr(world.broker, "enqueue", away)
        action = await world.work(action)
    assert (action.state, action.done, action.note) == (BulkActionState.PENDING, 0, "Redis is away")
    world.clock.advance(1000)
    assert (await world.work(action)).done == 3


async def test_a_queue_that_is_gone_fails_the_redrive_and_keeps_the_letters(world: World) -> None:
    await killed(world, 3)
    await world.broker.forget(world.environment.queue("orders"))
    action = await world.work(await world.start(redrive(queue="orders")))
    assert action.state is BulkActionState.FAILED
    assert await world.summary() == {"orders": 3}


async def test_a_patch_mends_payloads_and_keeps_to_the_message_type(world: World) -> None:
    queue = await world.define("orders")
    fields = (MessageField(name="n", type="int"), MessageField(name="unit", type="string"))
    await QueueDefinitions(world.database).define(queue, QueueSpec(name="orders", message_type=fields))
    await world.kill(queue, {"n": 1, "old": True}, {"n": 2, "unit": "kg"}, {"n": "three"})
    action = await world.work(await world.start(redrive(queue="orders", patch='{"unit": "g", "old": null}')))
    assert (action.done, action.skipped) == (2, 1)
    assert "expected int" in str(action.problem)
    sent = [json.loads(payload) for payload in await world.waiting(queue)]
    assert sorted(sent, key=lambda one: one["n"]) == [{"n": 1, "unit": "g"}, {"n": 2, "unit": "g"}]
    assert await world.summary() == {"orders": 1}


async def test_one_letter_can_be_replayed_by_hand_once(world: World) -> None:
    queue = await world.define("orders")
    other = await world.define("mails")
    (letter_id,) = await world.kill(queue, {"n": 1})
    with pytest.raises(NotFound):
        await world.letters.redrive(other, letter_id, by="ann")
    new_id = await world.letters.redrive(queue, letter_id, by="ann")
    assert numbers(await world.waiting(queue)) == [1]
    assert (await world.letters.find(queue, letter_id)).replay_id == new_id
    with pytest.raises(Conflict):
        await world.letters.redrive(queue, letter_id, by="ann")
    with pytest.raises(NotFound):
        await world.letters.redrive(queue, new_id, by="ann")
    with pytest.raises(InvalidInput):
        await world.letters.redrive(queue, "no uuid", by="ann")
    await world.check_exact()


async def test_a_replay_that_dies_again_is_a_letter_of_its_own_with_a_parent(world: World) -> None:
    queue = await world.define("orders")
    (letter_id,) = await world.kill(queue, {"n": 1})
    new_id = await world.letters.redrive(queue, letter_id, by="ann")
    await world.die(queue)
    await world.move()
    child = await world.letters.find(queue, new_id)
    assert child.replay_of == letter_id
    assert (await world.letters.find(queue, letter_id)).replay_result == "died"
    assert await world.summary() == {"orders": 1}
    third = await world.letters.redrive(queue, new_id, by="ann")
    assert third not in (letter_id, new_id)


async def test_the_original_idempotency_key_does_not_stop_a_replay(world: World) -> None:
    queue = await world.define("orders")
    message = NewMessage(payload=b"{}", idempotency_key="pay once")
    await world.broker.enqueue(queue, [message])
    await world.die(queue)
    await world.move()
    await world.letters.redrive(queue, message.id, by="ann")
    assert await world.waiting(queue) == [b"{}"]


async def test_letters_that_no_queue_would_take_are_skipped_and_the_others_go(world: World) -> None:
    queue = await world.define("orders")
    huge = NewMessage(payload=b"1", headers={"big": "x" * 65_530})
    await world.broker.enqueue(queue, [huge, NewMessage(payload=b'{"n": 2}')])
    await world.die(queue)
    await world.move()
    action = await world.work(await world.start(redrive(queue="orders")))
    assert (action.state, action.done, action.skipped) == (BulkActionState.COMPLETED, 1, 1)
    assert "headers" in str(action.problem)
    assert await world.waiting(queue) == [b'{"n": 2}']
    with pytest.raises(InvalidInput, match="cannot be replayed"):
        await world.letters.redrive(queue, huge.id, by="ann")
    await world.check_exact()


async def test_cancelled_canaries_prove_nothing(world: World) -> None:
    action = await canaries(world)
    queue = world.environment.queue("orders")
    sent = [letter.replay_id for letter in await world.letters_of(action.canary_ids)]
    await world.broker.cancel(queue, [MessageId(str(one)) for one in sent])
    world.clock.advance(1000)
    action = await world.work(action)
    assert (action.state, action.done) == (BulkActionState.STOPPED_BY_CANARY, 4)
    assert action.canary_state == "failed"
    assert action.note == "4 of 4 canaries were cancelled, so they prove nothing; resume to send new ones"
    (letter, *_) = await world.letters_of(action.canary_ids)
    assert letter.replay_result is None
    assert await world.letters.fate_of_replay(letter) == "cancelled"


async def test_patience_is_told_as_people_say_it(world: World) -> None:
    action = await canaries(world, canary_patience_ms=1_500)
    world.clock.advance(1_500)
    action = await world.work(action)
    assert "after 1.5 s" in str(action.note)
    assert action.canary_state == "failed"


@pytest.mark.parametrize("patch", ["1", "null", "'text'", "[1]", "payload.n > 1"])
def test_a_patch_that_cannot_be_an_object_is_refused_before_anything_happens(patch: str) -> None:
    with pytest.raises(InvalidInput, match="expected an object"):
        redrive(queue="orders", patch=patch)


@pytest.mark.parametrize(
    ("patch", "payload"), [("payload.n", {"n": 1}), ('{"m": 1}', "text"), ('{"m": 1}', [1])]
)
async def test_a_patch_never_destroys_a_payload(world: World, patch: str, payload: Any) -> None:
    queue = await world.define("orders")
    await world.kill(queue, payload)
    for dry_run in (True, False):
        action = await world.work(await world.start(redrive(queue="orders", patch=patch, dry_run=dry_run)))
        assert (action.done, action.skipped) == (0, 1)
        assert "replace:" in str(action.problem)
    assert await world.summary() == {"orders": 1}


async def test_a_patch_that_says_so_replaces_whole_payloads(world: World) -> None:
    queue = await world.define("orders")
    await world.kill(queue, {"n": 1}, "text")
    action = await world.work(await world.start(redrive(queue="orders", patch='replace: {"was": payload}')))
    assert action.done == 2
    assert [json.loads(one) for one in await world.waiting(queue)] == [{"was": {"n": 1}}, {"was": "text"}]
