"""Bulk actions under claims: one that fails, hangs or ends its process costs the others nothing, and nothing
is sent twice or lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from tests.deadletters.world import World, numbers

from benches.worst_expressions import payloads
from support.waiting import until
from weir.deadletters import bulk_action_runner
from weir.deadletters.bulk_action_runner import CLAIM_MS, PATIENCE, BulkActionRunner
from weir.deadletters.bulk_action_states import BulkActionState
from weir.deadletters.bulk_actions import BulkAction, BulkActionKind, NewBulkAction
from weir.deadletters.evaluation import judged
from weir.deadletters.filters import Filter
from weir.deadletters.rates import SendLimits
from weir.deadletters.replay import CLAIM_MS as LETTERS_MS
from weir.deadletters.replay import Hand
from weir.errors import BrokerUnavailable, Conflict
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.ids import new_id
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef, QueueRef

ENDLESS = "lists.range(1000).all(n, payload == payload && payload.l.distinct().size() > 0)"
HALF_AN_EMOJI = b'{"name": "\\ud83d", "order": 1}'


class KilledHere(SystemExit):
    """As kill -9 does, it leaves no time for anything."""


def bulk(
    kind: BulkActionKind = BulkActionKind.REDRIVE,
    *,
    patch: str | None = None,
    dry_run: bool = False,
    **filters: Any,
) -> NewBulkAction:
    return NewBulkAction(kind=kind, filter=Filter(queue="orders", **filters), patch=patch, dry_run=dry_run)


def neighbour(world: World) -> World:
    """Another organization in the same stores."""
    other = EnvironmentRef(
        organization=f"other {uuid4().hex}", project="shop", environment=f"e {uuid4().hex}"
    )
    return World(world.database, other, clock=world.clock, shards=world.shards, server=world.broker)


async def dead(world: World, count: int) -> QueueRef:
    queue = await world.define("orders")
    await world.kill(queue, *({"n": n} for n in range(count)))
    return queue


async def kill_payload(world: World, queue: QueueRef, payload: bytes) -> str:
    message = NewMessage(payload=payload)
    await world.broker.enqueue(queue, [message])
    await world.die(queue)
    await world.move()
    return message.id


@asynccontextmanager
async def running(runner: BulkActionRunner) -> AsyncIterator[None]:
    task = asyncio.create_task(runner.run())
    try:
        yield
    finally:
        await cancel_and_wait([task])


def failing_in(monkeypatch: pytest.MonkeyPatch, world: World, how: Any) -> None:
    """Let every push into queues of this environment do something else first."""
    enqueue = world.broker.enqueue

    async def odd(queue: QueueRef, messages: Any, **options: Any) -> Any:
        if queue.scope == world.environment:
            await how()
        return await enqueue(queue, messages, **options)

    monkeypatch.setattr(world.broker, "enqueue", odd)


async def found(world: World, action: BulkAction) -> BulkAction:
    return await world.bulk_actions.find(world.environment, action.id)


@pytest.mark.parametrize(
    "asked", [{"expression": "payload.order == 1"}, {"patch": '{"seen": payload.order}'}]
)
async def test_a_letter_with_half_an_emoji_stops_no_bulk_action(
    lone_world: World, asked: dict[str, str]
) -> None:
    queue = await lone_world.define("orders")
    await kill_payload(lone_world, queue, HALF_AN_EMOJI)
    await lone_world.kill(queue, {"order": 1})
    other = neighbour(lone_world)
    await dead(other, 2)
    poisoned = await lone_world.start(bulk(**asked))
    healthy = await other.start(bulk())
    while await lone_world.runner.step() is not None:
        pass
    poisoned, healthy = await found(lone_world, poisoned), await found(other, healthy)
    assert (healthy.state, healthy.done) == (BulkActionState.COMPLETED, 2)
    assert poisoned.state is BulkActionState.COMPLETED
    assert poisoned.done + poisoned.skipped == 2
    await lone_world.check_exact()


@pytest.mark.parametrize("asked", [{"expression": ENDLESS}, {"patch": '{"x": ' + ENDLESS + "}"}])
async def test_an_expression_over_its_budget_fails_its_action_which_names_the_letter(
    lone_world: World, asked: dict[str, str]
) -> None:
    queue = await lone_world.define("orders")
    await kill_payload(lone_world, queue, b'{"l": [1]}')
    await kill_payload(lone_world, queue, payloads()["objects"])
    (large,) = await lone_world.rows(
        "SELECT id FROM weir.dead_letters WHERE length(payload) > 1000 AND consumer_key IN "
        "(SELECT consumer_key FROM weir.consumers WHERE environment = %s)"
    )
    other = neighbour(lone_world)
    await dead(other, 2)
    costly = await lone_world.start(bulk(**asked, dry_run=True))
    healthy = await other.start(bulk())
    while await lone_world.runner.step() is not None:
        pass
    costly, healthy = await found(lone_world, costly), await found(other, healthy)
    assert healthy.state is BulkActionState.COMPLETED
    assert costly.state is BulkActionState.FAILED
    assert str(costly.note).startswith(f"message `{large['id']}`: `")
    assert "processor time" in str(costly.note)


async def test_an_action_that_raises_is_put_off_for_longer_and_given_up_and_its_owner_sees_why(
    lone_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dead(lone_world, 2)
    other = neighbour(lone_world)
    await dead(other, 2)

    async def fails() -> None:
        raise RuntimeError("nobody thought\x00 of \ud83d this")

    failing_in(monkeypatch, lone_world, fails)
    bad, good = await lone_world.start(bulk()), await other.start(bulk())
    while await lone_world.runner.step() is not None:
        pass
    assert (await found(other, good)).state is BulkActionState.COMPLETED
    waits = []
    for number in range(1, PATIENCE.tries):
        bad = await found(lone_world, bad)
        assert bad.state is BulkActionState.PENDING
        assert str(bad.note).startswith(
            f"try {number} of {PATIENCE.tries} failed and is repeated: RuntimeError: "
        )
        waits.append(bad.next_at_ms - lone_world.clock.now_ms())
        lone_world.clock.advance(waits[-1] - 1)
        assert await lone_world.runner.step() is None
        lone_world.clock.advance(1)
        assert await lone_world.runner.step() is not None
    assert waits == sorted(waits)
    assert waits[-1] > 10 * waits[0]
    bad = await found(lone_world, bad)
    assert bad.state is BulkActionState.FAILED
    assert "nobody thought" in str(bad.note)
    records = "SELECT action FROM weir.audit_log WHERE environment = %s ORDER BY id"
    assert [row["action"] for row in await lone_world.rows(records)] == ["dlq.redrive", "dlq.task.failed"]
    assert await lone_world.summary() == {"orders": 2}


async def test_an_action_that_hangs_delays_nobody_and_is_cut_off(
    lone_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dead(lone_world, 2)
    other = neighbour(lone_world)
    await dead(other, 2)
    failing_in(monkeypatch, lone_world, asyncio.Event().wait)
    stuck = [await lone_world.start(bulk()) for _ in range(bulk_action_runner.SLOTS)]
    async with running(lone_world.runner):
        good = await other.start(bulk())

        async def is_done() -> bool:
            return (await found(other, good)).state is BulkActionState.COMPLETED

        await until(is_done)
    assert [(await found(lone_world, one)).done for one in stuck] == [0] * len(stuck)
    monkeypatch.setattr(bulk_action_runner, "PATIENCE", replace(PATIENCE, longest_s=0.01))
    lone_world.clock.advance(2 * CLAIM_MS)
    await lone_world.runner.step(stuck[0].id)
    assert "it took longer than 10 ms" in str((await found(lone_world, stuck[0])).note)


async def test_an_action_that_ends_its_process_is_given_up_after_some_tries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dead(world, 2)

    async def kills() -> None:
        raise KilledHere

    failing_in(monkeypatch, world, kills)
    action = await world.start(bulk())
    for number in range(1, PATIENCE.tries + 1):
        with pytest.raises(KilledHere):
            await world.runner.step(action.id)
        assert (await found(world, action)).tries == number
        assert await BulkActionRunner(world.broker, world.database, clock=world.clock).step(action.id) is None
        world.clock.advance((number + 1) * CLAIM_MS)
    await world.runner.step(action.id)
    action = await found(world, action)
    assert action.state is BulkActionState.FAILED
    assert "the process that worked on it ended each time" in str(action.note)
    world.clock.advance(LETTERS_MS)
    assert await world.summary() == {"orders": 2}


async def test_a_store_that_is_away_uses_up_no_try(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await dead(world, 1)

    async def away() -> None:
        raise BrokerUnavailable("Redis is away")

    with monkeypatch.context() as patch:
        failing_in(patch, world, away)
        action = await world.start(bulk())
        for _ in range(PATIENCE.tries + 2):
            await world.runner.step(action.id)
            world.clock.advance(1_000)
    assert (await world.work(action)).state is BulkActionState.COMPLETED


async def test_tenants_take_turns_however_many_actions_one_has(lone_world: World) -> None:
    other = neighbour(lone_world)
    for one in (lone_world, other):
        await dead(one, 1)
    for _ in range(20):
        await lone_world.start(bulk(dry_run=True))
    await other.start(bulk(dry_run=True))
    turns = [await lone_world.runner.step() for _ in range(2)]
    assert {one.environment for one in turns if one} == {lone_world.environment, other.environment}


async def interrupted(world: World, monkeypatch: pytest.MonkeyPatch, *, after_sending: bool) -> BulkAction:
    """A redrive whose process is killed with all its letters in hand."""
    action = await world.start(bulk())

    async def killed(*_: object, **__: object) -> None:
        raise KilledHere

    place = (
        "weir.deadletters.bulk_action_batch.settle" if after_sending else "weir.deadletters.replay._enqueue"
    )
    with monkeypatch.context() as patch:
        patch.setattr(place, killed)
        with pytest.raises(KilledHere):
            await world.runner.step(action.id)
    return action


@pytest.mark.parametrize("after_sending", [False, True])
async def test_letters_in_hand_are_neither_sent_nor_deleted_by_anybody_else(
    world: World, monkeypatch: pytest.MonkeyPatch, after_sending: bool
) -> None:
    queue = await dead(world, 5)
    first = await interrupted(world, monkeypatch, after_sending=after_sending)
    sent = 5 if after_sending else 0
    second = await world.work(await world.start(bulk()), steps=1)
    by_fields = await world.work(await world.start(bulk(BulkActionKind.PURGE)), steps=1)
    by_expression = await world.work(
        await world.start(bulk(BulkActionKind.PURGE, expression="payload.n < 9")), steps=1
    )
    for waiting in (second, by_fields, by_expression):
        assert (waiting.state, waiting.done, waiting.scanned) == (BulkActionState.RUNNING, 0, 0)
        assert waiting.note == "another redrive has the next letters in hand; waiting for it"
        await world.bulk_actions.cancel(world.environment, waiting.id, by="test")
    letter = (await world.newest(queue))[0]
    with pytest.raises(Conflict, match="is being redriven just now"):
        await world.letters.redrive(queue, letter.id, by="test")
    with pytest.raises(Conflict, match="is being redriven just now"):
        await world.letters.delete(queue, letter.id, by="test")
    assert (await world.broker.state(queue)).depth == sent
    assert await world.summary() == {"orders": 5}
    world.clock.advance(2 * CLAIM_MS)
    first = await world.work(first)
    assert (first.state, first.done) == (BulkActionState.COMPLETED, 5)
    assert sorted(numbers(await world.waiting(queue))) == [0, 1, 2, 3, 4]
    await world.check_exact()


async def test_a_purge_waits_for_a_letter_that_is_taken_in_hand_while_it_looks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await dead(world, 5)
    ids = [letter.id for letter in (await world.newest(queue))[::-1]]
    hand = Hand(database=world.database, claim=new_id())

    async def judged_late(*args: Any) -> Any:
        answers = await judged(*args)
        await hand.take([ids[2]], now_ms=world.clock.now_ms())
        return answers

    purge = await world.start(bulk(BulkActionKind.PURGE, expression="payload.n < 9"))
    with monkeypatch.context() as patch:
        patch.setattr("weir.deadletters.bulk_action_batch.judged", judged_late)
        purge = await world.work(purge, steps=1)
    assert (purge.state, purge.done, purge.scanned) == (BulkActionState.RUNNING, 2, 2)
    assert purge.note == "another redrive has the next letters in hand; waiting for it"
    await hand.open()
    world.clock.advance(1_000)
    purge = await world.work(purge)
    assert (purge.state, purge.done, purge.matched) == (BulkActionState.COMPLETED, 5, 5)
    assert await world.newest(queue) == []
    await world.check_exact()


async def test_letters_of_a_killed_redrive_can_be_purged_once_its_claim_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await dead(world, 3)
    first = await interrupted(world, monkeypatch, after_sending=False)
    world.clock.advance(LETTERS_MS)
    purge = await world.work(await world.start(bulk(BulkActionKind.PURGE)))
    assert (purge.state, purge.done) == (BulkActionState.COMPLETED, 3)
    world.clock.advance(2 * CLAIM_MS)
    assert (await world.work(first)).done == 0
    assert (await world.broker.state(queue)).depth == 0
    await world.check_exact()


async def test_a_runner_that_comes_back_after_it_was_taken_over_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await dead(world, 4)
    action = await world.start(bulk())
    sent, go_on = asyncio.Event(), asyncio.Event()
    enqueue = world.broker.enqueue

    async def stopped(*arguments: Any, **options: Any) -> Any:
        answers = await enqueue(*arguments, **options)
        if not sent.is_set():
            sent.set()
            await go_on.wait()
        return answers

    monkeypatch.setattr(world.broker, "enqueue", stopped)
    slow = asyncio.create_task(world.runner.step(action.id))
    await sent.wait()
    world.clock.advance(2 * CLAIM_MS)
    other = BulkActionRunner(world.broker, world.database, clock=world.clock)
    while (taken := await other.step(action.id)) is not None and not taken.state.over:
        pass
    go_on.set()
    await slow
    action = await found(world, action)
    assert (action.state, action.done, action.scanned) == (BulkActionState.COMPLETED, 4, 4)
    assert sorted(numbers(await world.waiting(queue))) == [0, 1, 2, 3]
    await world.check_exact()


@pytest.mark.parametrize("verb", ["pause", "cancel"])
async def test_an_action_that_is_stopped_during_a_batch_stays_stopped_and_tells_what_it_did(
    world: World, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    await dead(world, 4)
    action = await world.start(bulk())

    async def owner_stops_it() -> None:
        await getattr(world.bulk_actions, verb)(world.environment, action.id, by="ann")

    failing_in(monkeypatch, world, owner_stops_it)
    await world.runner.step(action.id)
    action = await found(world, action)
    assert (action.state, action.done) == ({"pause": "paused", "cancel": "cancelled"}[verb], 4)
    assert await world.summary() == {"orders": 0}


async def test_no_transaction_is_open_while_a_redrive_sends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dead(world, 3)
    idle = (
        "SELECT count(*) AS n FROM pg_stat_activity "
        "WHERE state = 'idle in transaction' AND datname = current_database()"
    )
    seen: list[int] = []

    async def look() -> None:
        async with world.database.connection() as connection:
            row = await (await connection.execute(idle)).fetchone()
            seen.append(row["n"] if row else -1)

    failing_in(monkeypatch, world, look)
    await world.work(await world.start(bulk(patch='{"a": 1}', expression="payload.n >= 0")))
    assert seen == [0]


async def test_a_long_batch_keeps_its_claim(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await dead(world, 1)
    action = await world.start(bulk())
    other = BulkActionRunner(world.broker, world.database, clock=world.clock)
    renewals = 0

    async def is_slow() -> None:
        nonlocal renewals
        before = await claimed_until()
        world.clock.advance(CLAIM_MS - 1)
        await until(lambda: is_later(before))
        world.clock.advance(CLAIM_MS - 1)
        assert await other.step(action.id) is None
        renewals += 1

    async def claimed_until() -> int:
        asked = "SELECT claimed_until_ms AS at_ms FROM weir.dead_letter_tasks WHERE environment = %s"
        return int((await world.rows(asked))[0]["at_ms"])

    async def is_later(before: int) -> bool:
        return await claimed_until() > before

    monkeypatch.setattr(bulk_action_runner, "RENEW_S", 0.01)
    failing_in(monkeypatch, world, is_slow)
    stepped = await world.runner.step(action.id)
    assert stepped is not None
    assert (stepped.done, renewals) == (1, 1)


async def test_an_action_goes_on_at_once_when_the_clock_stepped_back(world: World) -> None:
    await dead(world, 1)
    action = await world.start(bulk())
    world.clock.advance(-3_600_000)
    assert await world.runner._claim(action.id) is not None, "its pause ended before the step"
    world.clock.advance(-3_600_000)
    stepped = await world.runner.step(action.id)
    assert stepped is not None, "and so did the claim of a process that died"
    assert stepped.done == 1


async def test_a_slow_rate_is_kept_to_although_its_pause_is_long(world: World) -> None:
    await dead(world, 2)
    action = await world.start(replace(bulk(), limits=SendLimits(rate_per_s=0.001)))
    assert (stepped := await world.runner.step(action.id)) is not None
    assert stepped.done == 1
    world.clock.advance(900_000)
    assert await world.runner.step(action.id) is None
    world.clock.advance(100_000)
    assert await world.runner.step(action.id) is not None
