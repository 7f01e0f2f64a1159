"""Ticks go out once: on time, after an outage, into full queues, and whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime

import pytest

from operations.cluster import Link, Linked
from schedules.world import HOUR_MS, World, payloads_of, ticks_of
from support.waiting import until
from weir.admission.admission import Admission
from weir.control.database import Database
from weir.deadletters.mover import Mover
from weir.errors import Conflict, NotFound
from weir.exchange.service import OperationService
from weir.model.asyncio_tasks import cancel_and_wait
from weir.model.durations import DAY_MS
from weir.model.ids import MessageId
from weir.model.inspection import Touched
from weir.model.message import Failure, Settlement
from weir.model.names import EnvironmentRef, QueueRef
from weir.schedules.register import declare_schedules
from weir.schedules.runs import KEPT_RUNS
from weir.schedules.schedule import ScheduleRun
from weir.schedules.scheduler import OVERLAPS, Scheduler
from weir.spec.ir import MissedTicks, Overlap, ScheduleSpec, Timing
from weir.spec.timing import newest_ticks
from weir.testing.memory import MemoryBroker


def ms_of(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


async def test_a_tick_pushes_the_payload_with_the_names_of_schedule_and_tick(world: World) -> None:
    queue = await world.define()
    await world.create("Nächtlich ✓", cron="0 3 * * *", timezone="Europe/Berlin", payload={"kind": "daily"})
    detail = await world.schedules.show(world.environment, "Nächtlich ✓")
    world.clock.set(detail.next_ticks[0] - 1)
    await world.serve()
    assert await world.take(queue) == []
    await world.pass_ms(1)
    found = await world.take(queue)
    assert payloads_of(found) == [{"kind": "daily"}]
    [(name, tick)] = ticks_of(found)
    assert (name, ms_of(tick)) == ("Nächtlich ✓", detail.next_ticks[0])
    assert len(detail.next_ticks) == 10


async def test_a_tick_whose_record_was_lost_is_not_pushed_twice(world: World) -> None:
    queue = await world.define()
    await world.create(every_ms=60_000)
    world.clock.advance(60_000)
    await world.die()
    assert await world.runs() == []
    await world.serve()
    assert await world.outcomes() == [("pushed", 1)]
    assert len(await world.take(queue)) == 1


async def test_three_schedulers_of_which_one_dies_again_and_again_lose_and_double_nothing(
    world: World, database_url: str
) -> None:
    """One dies in most rounds: while it waits for PostgreSQL, or between its push and its record."""
    queue = await world.define()
    timings = {
        "second": Timing(every_ms=1_000),
        "seven": Timing(every_ms=7_000),
        "minute": Timing(cron="* * * * *"),
        "fives": Timing(cron="*/5 * * * *", timezone="Asia/Kolkata"),
    }
    begun_ms = world.clock.now_ms()
    for name, timing in timings.items():
        spec = ScheduleSpec(name=name, queue="q", timing=timing, missed=MissedTicks.ALL)
        await world.schedules.create(world.environment, spec)
    chance = random.Random(20)
    async with AsyncExitStack() as stack:
        pools = [await stack.enter_async_context(Database(database_url, max_size=2)) for _ in range(3)]
        schedulers = [world.new_scheduler(pool) for pool in pools]
        for _ in range(250):
            world.clock.advance(chance.randint(500, 4_000))
            await _round_with_a_death(world, schedulers, chance)
        world.pusher.crashes = 0
        await world.serve()
    counted = Counter((name, ms_of(tick)) for name, tick in ticks_of(await world.take(queue)))
    expected = {
        (name, tick)
        for name, timing in timings.items()
        for tick in newest_ticks(timing, after_ms=begun_ms, until_ms=world.clock.now_ms(), limit=10_000)[0]
    }
    assert len(expected) > 500
    assert (set(counted) - expected, expected - set(counted)) == (set(), set())
    assert set(counted.values()) == {1}


async def _round_with_a_death(world: World, schedulers: list[Scheduler], chance: random.Random) -> None:
    world.pusher.crashes = chance.randint(0, 1)
    tasks = [asyncio.create_task(scheduler.run_round()) for scheduler in schedulers]
    if chance.random() < 0.6:
        await asyncio.sleep(chance.random() * 0.02)
        await cancel_and_wait([chance.choice(tasks)])
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    ("missed", "ticks"),
    [(MissedTicks.SKIP, []), (MissedTicks.LAST, [5]), (MissedTicks.ALL, [1, 2, 3, 4, 5])],
)
async def test_after_an_outage_missed_ticks_are_caught_up_as_declared(
    world: World, missed: MissedTicks, ticks: list[int]
) -> None:
    queue = await world.define()
    start_ms = world.clock.now_ms()
    await world.create(every_ms=HOUR_MS, missed=missed)
    await world.pass_ms(5 * HOUR_MS + HOUR_MS // 2)
    found = [ms_of(tick) for _, tick in ticks_of(await world.take(queue))]
    assert found == [start_ms + number * HOUR_MS for number in ticks]
    assert sum(run.ticks for run in await world.runs()) == 5
    await world.pass_ms(HOUR_MS // 2)
    assert len(await world.take(queue)) == 1


async def test_with_overlap_skip_no_tick_goes_out_while_the_one_before_is_not_done(world: World) -> None:
    queue = await world.define()
    await world.create(every_ms=60_000, overlap=Overlap.SKIP)
    await world.pass_ms(60_000)
    [waiting] = await world.broker.dequeue(queue, consumer="test", lease_ms=HOUR_MS)
    await world.pass_ms(60_000)
    assert await world.outcomes() == [("pushed", 1), ("skipped", 1)]
    assert (await world.runs())[0].reason == OVERLAPS
    await world.broker.ack([waiting.lease])
    await world.pass_ms(60_000)
    assert await world.outcomes() == [("pushed", 1), ("skipped", 1), ("pushed", 1)]
    assert len(await world.take(queue)) == 1


async def test_ticks_that_are_skipped_for_the_same_reason_are_one_run(world: World) -> None:
    await world.define()
    await world.create(every_ms=1_000, overlap=Overlap.SKIP)
    for _ in range(30):
        await world.pass_ms(1_000)
    assert await world.outcomes() == [("pushed", 1), ("skipped", 29)]


async def test_a_message_that_takes_long_is_not_forgotten_by_the_ticks_that_it_keeps_out(
    world: World,
) -> None:
    queue = await world.define()
    await world.create(every_ms=1_000, overlap=Overlap.SKIP)
    await world.pass_ms(1_000)
    for _ in range(KEPT_RUNS):
        # Some ticks are missed and some overlap, so each turn records two runs.
        await world.pass_ms(62_000)
    assert len(await world.take(queue)) == 1


async def test_a_full_queue_delays_a_tick_and_loses_none(world: World) -> None:
    queue = await world.define(max_depth=1)
    await world.create(every_ms=HOUR_MS)
    await world.pass_ms(HOUR_MS)
    await world.pass_ms(HOUR_MS)
    shown = (await world.schedules.show(world.environment, "s")).schedule
    assert shown.problem is not None
    assert "is full" in shown.problem
    # Far later than a tick may be late, and `missed` is `skip`: but it was tried in time.
    await world.pass_ms(HOUR_MS // 2)
    [first] = await world.take(queue)
    await world.pass_ms(60_000)
    [second] = await world.take(queue)
    assert ms_of(second.headers["weir-tick"]) - ms_of(first.headers["weir-tick"]) == HOUR_MS
    assert (await world.schedules.show(world.environment, "s")).schedule.problem is None


async def test_a_queue_that_is_gone_fails_its_ticks_and_not_those_of_others(world: World) -> None:
    gone, kept = await world.define("gone"), await world.define("kept")
    await world.create("a", queue="gone", every_ms=60_000)
    await world.create("b", queue="kept", every_ms=60_000)
    await world.broker.forget(gone)
    await world.pass_ms(60_000)
    [failed] = await world.runs("a")
    assert (failed.outcome.value, failed.message_id) == ("failed", None)
    assert "there is no queue" in (failed.reason or "")
    assert len(await world.take(kept)) == 1


async def _tick_while_cut(world: World) -> tuple[Linked, OperationService]:
    """Let a schedule tick while the broker does not answer, so that its push becomes an operation."""
    assert isinstance(world.broker, MemoryBroker)
    linked = Linked(world.broker)
    service = OperationService(
        database=world.database,
        broker=linked,
        admission=Admission(),
        allowance_ms=40,  # type: ignore[arg-type]
    )
    scheduler = Scheduler(world.database, linked, service.front(), clock=world.clock)  # type: ignore[arg-type]
    await world.create(every_ms=60_000)
    linked.link = Link.CUT
    world.clock.advance(60_000)
    await scheduler.run_round()
    return linked, service


async def test_while_the_broker_is_away_ticks_are_queued_and_come_once(world: World) -> None:
    queue = await world.define()
    linked, service = await _tick_while_cut(world)
    [run] = await world.runs()
    assert (run.outcome.value, run.ended) == ("pushed", None)
    assert run.operation_id is not None
    linked.link = Link.UP
    running = asyncio.create_task(service.run())
    try:
        found = await until(lambda: world.take(queue))
    finally:
        await cancel_and_wait([running])
    assert [one.message_id for one in found] == [run.message_id]


async def test_with_overlap_skip_a_tick_waits_until_the_broker_can_tell(world: World) -> None:
    queue = await world.define()
    await world.create(every_ms=60_000, overlap=Overlap.SKIP)
    await world.pass_ms(60_000)
    await world.take(queue)
    assert isinstance(world.broker, MemoryBroker)
    linked = Linked(world.broker)
    scheduler = Scheduler(world.database, linked, world.pusher, clock=world.clock)  # type: ignore[arg-type]
    linked.link = Link.CUT
    world.clock.advance(60_000)
    await scheduler.run_round()
    assert await world.outcomes() == [("pushed", 1)]
    assert (await world.schedules.show(world.environment, "s")).schedule.problem == "broker_unavailable: cut"
    linked.link = Link.UP
    world.clock.advance(10_000)
    await scheduler.run_round()
    assert await world.outcomes() == [("pushed", 1), ("pushed", 1)]


async def test_a_run_shows_how_its_message_ended_also_after_the_letter_is_gone(world: World) -> None:
    queue = await world.define()
    await world.create(every_ms=60_000)
    await world.pass_ms(60_000)
    assert [run.ended for run in await world.runs()] == [None]
    [one] = await world.broker.dequeue(queue, consumer="test")
    await world.broker.ack([one.lease])
    assert [run.ended for run in await world.runs()] == ["acked"]
    await world.pass_ms(60_000)
    [dying] = await world.broker.dequeue(queue, consumer="test")
    await world.broker.dead_letter([Failure(lease=dying.lease, error="boom")])
    await _move_dead(world)
    assert [run.ended for run in await world.runs()] == ["dead", "acked"]
    await world.pass_ms(60_000)
    async with world.database.connection() as connection:
        await connection.execute("DELETE FROM weir.dead_letters")
    assert [run.ended for run in await world.runs()] == [None, "dead", "acked"]


async def test_a_cancelled_message_shows_as_cancelled_in_its_run(world: World) -> None:
    queue = await world.define()
    await world.create(every_ms=60_000)
    await world.pass_ms(60_000)
    [waiting] = await world.runs()
    await _cancel(world, queue, waiting)
    assert [run.ended for run in await world.runs()] == ["cancelled"]
    await world.pass_ms(60_000)
    [leased] = await world.broker.dequeue(queue, consumer="test")
    await _cancel(world, queue, (await world.runs())[0])
    assert await world.broker.ack([leased.lease]) != [Settlement.DONE]
    [(_, last)] = await world.schedules.of(world.environment)
    assert last is not None
    assert last.ended == "cancelled"
    await world.pass_ms(60_000)
    # The mark of the cancellation is gone by then, and the record of the tick remains.
    world.clock.advance(2 * DAY_MS)
    assert [run.ended for run in await world.runs()] == [None, "cancelled", "cancelled"]


async def test_the_ends_of_many_runs_are_asked_for_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await world.define()
    await world.create(every_ms=60_000)
    for _ in range(5):
        await world.pass_ms(60_000)
    runs = await world.runs()
    await _cancel(world, queue, runs[2])
    await world.take(queue)
    asked: list[int] = []
    ask = world.broker.were_cancelled

    async def count(environment: EnvironmentRef, message_ids: Sequence[MessageId]) -> list[bool]:
        asked.append(len(message_ids))
        return await ask(environment, message_ids)

    monkeypatch.setattr(world.broker, "were_cancelled", count)
    ended = [run.ended for run in await world.runs()]
    assert ended == ["acked", "acked", "cancelled", "acked", "acked"]
    assert asked == [5]


async def _cancel(world: World, queue: QueueRef, run: ScheduleRun) -> None:
    assert run.message_id is not None
    assert await world.broker.cancel(queue, [run.message_id]) != [Touched.GONE]


async def test_an_expired_message_shows_as_dead_in_its_run(world: World) -> None:
    await world.define(message_ttl_ms=1_000)
    await world.create(every_ms=60_000)
    await world.pass_ms(60_000)
    world.clock.advance(2_000)
    for shard in range(2):
        await world.broker.sweep(shard)
    assert [run.ended for run in await world.runs()] == [None]
    await _move_dead(world)
    assert [run.ended for run in await world.runs()] == ["dead"]


async def test_a_run_whose_operation_is_cancelled_shows_as_cancelled(world: World) -> None:
    await world.define()
    await _tick_while_cut(world)
    async with world.database.connection() as connection:
        await connection.execute("UPDATE weir.operations SET status = 'cancelled'")
    assert [run.ended for run in await world.runs()] == ["cancelled"]
    async with world.database.connection() as connection:
        await connection.execute("UPDATE weir.operations SET status = 'failed'")
    assert [run.ended for run in await world.runs()] == ["failed"]


async def _move_dead(world: World) -> None:
    while await Mover(world.broker, world.database, clock=world.clock).run_round():
        pass


async def test_a_paused_schedule_ticks_again_from_when_it_is_resumed(world: World) -> None:
    queue = await world.define()
    await world.create(every_ms=HOUR_MS, missed=MissedTicks.ALL)
    await world.schedules.pause(world.environment, "s", paused=True)
    assert (await world.schedules.show(world.environment, "s")).next_ticks == ()
    await world.pass_ms(3 * HOUR_MS)
    await world.schedules.pause(world.environment, "s", paused=False)
    await world.serve()
    assert await world.take(queue) == []
    await world.pass_ms(HOUR_MS)
    assert len(await world.take(queue)) == 1


async def test_a_run_that_is_asked_for_goes_out_once_also_if_paused_or_overlapping(world: World) -> None:
    queue = await world.define()
    await world.create(every_ms=HOUR_MS, overlap=Overlap.SKIP)
    await world.schedules.pause(world.environment, "s", paused=True)
    asked = await world.schedules.ask_run(world.environment, "s")
    world.clock.advance(10)
    assert await world.schedules.ask_run(world.environment, "s") == asked
    await world.die()
    await world.serve()
    world.clock.advance(10)
    await world.schedules.ask_run(world.environment, "s")
    await world.serve()
    assert [(run.asked, run.outcome.value) for run in await world.runs()] == [(True, "pushed")] * 2
    assert len(await world.take(queue)) == 2


async def test_another_timing_begins_anew_and_another_payload_loses_no_tick(world: World) -> None:
    queue = await world.define()
    before = await world.create(every_ms=HOUR_MS, missed=MissedTicks.ALL)
    world.clock.advance(HOUR_MS)
    await world.schedules.change(
        world.environment,
        ScheduleSpec(name="s", queue="q", timing=before.spec.timing, payload=[2], missed=MissedTicks.ALL),
    )
    await world.serve()
    assert payloads_of(await world.take(queue)) == [[2]]
    world.clock.advance(HOUR_MS)
    await world.schedules.change(
        world.environment, ScheduleSpec(name="s", queue="q", timing=Timing(every_ms=2 * HOUR_MS))
    )
    await world.serve()
    assert await world.take(queue) == []


async def test_a_spec_keeps_what_stays_and_owns_what_it_names(world: World) -> None:
    await world.define()
    await world.create("of the API", every_ms=HOUR_MS)
    await world.create("taken over", every_ms=HOUR_MS)
    specs = [
        ScheduleSpec(name=name, queue="q", timing=Timing(every_ms=HOUR_MS)) for name in ("taken over", "new")
    ]
    now_ms = world.clock.now_ms()
    async with world.database.transaction() as connection:
        await declare_schedules(connection, world.environment, specs, now_ms=now_ms)
    await world.schedules.pause(world.environment, "new", paused=True)
    async with world.database.transaction() as connection:
        await declare_schedules(connection, world.environment, specs, now_ms=now_ms + 1)
    found = {
        one.spec.name: (one.origin.value, one.paused)
        for one, _ in await world.schedules.of(world.environment)
    }
    assert found == {"new": ("spec", True), "of the API": ("api", False), "taken over": ("spec", False)}
    with pytest.raises(Conflict, match="belongs to the spec"):
        await world.schedules.delete(world.environment, "new")
    async with world.database.transaction() as connection:
        await declare_schedules(connection, world.environment, [], now_ms=now_ms)
    assert [one.spec.name for one, _ in await world.schedules.of(world.environment)] == ["of the API"]
    with pytest.raises(NotFound):
        await world.schedules.show(world.environment, "new")


async def test_only_the_last_hundred_runs_are_kept(world: World) -> None:
    await world.define()
    await world.create(every_ms=1_000, missed=MissedTicks.ALL)
    await world.pass_ms(250_000)
    async with world.database.connection() as connection:
        rows = await (await connection.execute("SELECT count(*) AS n FROM weir.schedule_runs")).fetchone()
    assert rows == {"n": 100}
