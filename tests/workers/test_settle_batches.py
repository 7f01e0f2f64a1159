"""Batches of settlements: a bad one fails alone, and an absent Redis is waited for, but not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from support.waiting import until
from weir.errors import BrokerUnavailable
from weir.model.handling import Retry
from weir.model.limits import MAX_DELAY_MS
from weir.model.message import LeaseRef, Settlement
from weir.worker import Context
from weir.workers.prefetch import MAX_AHEAD, MAX_UNSETTLED

SPEC = (
    "app A { queue Q { delivery { max_attempts: 2, initial_backoff_ms: 60000 } map_to: command Thing.Do } }"
)


async def test_a_failure_that_is_refused_is_settled_with_that_reason_and_keeps_nobody_waiting(rig) -> None:
    @rig.commands.command("Thing.Do")
    async def do(context: Context) -> None:
        if context.payload == b"13":
            error = Retry("much later")
            error.delay_ms = MAX_DELAY_MS + 1
            raise error
        raise ValueError("not today")

    await rig.apply(SPEC)
    await rig.put("Q", *(b"%d" % number for number in range(30)))
    async with rig.working(concurrency=50):
        await until(lambda: len(rig.endings()) == 30)
    assert rig.endings() == ["failed"] * 30
    (refused,) = [one.error for one in rig.journal.attempts if one.delivery.payload == b"13"]
    assert "cannot be settled" in refused
    assert "much later" in refused
    state = await rig.broker.state(rig.environment.queue("Q"))
    assert (state.depth, state.running) == (30, 0)


async def test_a_settlement_outlives_a_redis_that_is_away(rig) -> None:
    ack, calls = rig.broker.ack, 0

    async def away(leases: Sequence[LeaseRef]) -> list[Settlement]:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise BrokerUnavailable("away")
        return await ack(leases)

    @rig.commands.command("Thing.Do")
    async def do() -> None: ...

    rig.broker.ack = away
    await rig.apply(SPEC)
    await rig.put("Q", b"1", b"2")
    async with rig.working():
        await until(lambda: rig.endings() == ["done", "done"])
    assert (await rig.broker.state(rig.environment.queue("Q"))).running == 0


async def test_a_settlement_that_is_given_up_is_recorded_as_lost(rig) -> None:
    async def away(leases: Sequence[LeaseRef]) -> list[Settlement]:
        raise BrokerUnavailable("away")

    @rig.commands.command("Thing.Do")
    async def do() -> None: ...

    rig.broker.ack = away
    await rig.apply(SPEC)
    await rig.put("Q", b"1")
    async with rig.working() as worker:
        worker._settling._patience_s = 0.0
        await until(lambda: rig.endings() == ["lost"])


async def test_a_worker_claims_no_more_than_it_can_settle(rig) -> None:
    ack, free, ran = rig.broker.ack, asyncio.Event(), 0

    async def slow(leases: Sequence[LeaseRef]) -> list[Settlement]:
        await free.wait()
        return await ack(leases)

    @rig.commands.command("Thing.Do")
    async def do() -> None:
        nonlocal ran
        ran += 1

    rig.broker.ack = slow
    await rig.apply(SPEC)
    for _ in range(6):
        await rig.put("Q", *[b"{}"] * 1_000)
    async with rig.working(concurrency=10) as worker:
        await until(lambda: ran >= MAX_UNSETTLED and worker.fetched_ahead == 0)
        for _ in range(200):
            await asyncio.sleep(0)
        assert ran <= MAX_UNSETTLED + MAX_AHEAD + 10
        free.set()
        await until(lambda: worker.processed == 6_000)
