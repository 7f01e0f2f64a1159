"""A process: loops that come back, queues that survive the loss of Redis, and a first token."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

from weir.control.authentication import CachedAuthenticator
from weir.control.database import Database
from weir.control.epochs import Epochs
from weir.control.queue_definitions import QueueDefinitions
from weir.control.tenants import Tenants
from weir.control.tokens import Tokens
from weir.errors import BrokerUnavailable, Misconfigured
from weir.model.backoff import Backoff
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.serve.bootstrap import ADMIN, DEFAULT, keep_token
from weir.serve.housekeeping import Heart, Sweeper
from weir.serve.loops import Loop, LoopSupervisor
from weir.serve.restore import restore
from weir.spec.ir import DeliverTo, DeliveryPolicy, Ordering, QueueSpec, Retention
from weir.testing.clocks import ManualClock
from weir.testing.memory import MemoryBroker


class LivingBroker:
    """A Redis whose lives a test decides."""

    def __init__(self, shards: int = 4) -> None:
        self.name: str | None = None
        self.written: int | None = None
        self.shards = shards

    async def written_shards(self) -> int | None:
        return self.written

    async def write_shards(self) -> None:
        self.written = self.written or self.shards

    async def epoch(self) -> str | None:
        return self.name

    async def begin_epoch(self, epoch: str) -> str:
        self.name = self.name or epoch
        return self.name

    async def hold_epoch(self, epoch: str) -> None:
        self.held = epoch


async def test_a_loop_that_fails_is_started_again_and_counted() -> None:
    runs, third = 0, asyncio.Event()

    async def fragile() -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            third.set()
            await asyncio.Event().wait()
        raise BrokerUnavailable("away") if runs == 1 else RuntimeError("broken")

    supervisor = LoopSupervisor(
        (Loop(name="fragile", run=fragile),), backoff=Backoff(first_s=0.001, longest_s=1)
    )
    async with supervisor.running(), asyncio.timeout(5):
        await third.wait()
    assert supervisor.restarts == {"fragile": 2}
    (family,) = [family async for family in supervisor.families()]
    assert family.samples[0].value == 2


@pytest.mark.parametrize("end", [asyncio.CancelledError(), BaseExceptionGroup("panics", [BaseException()])])
async def test_a_loop_is_started_again_whatever_it_ended_with(end: BaseException) -> None:
    runs, second = 0, asyncio.Event()

    async def fragile() -> None:
        nonlocal runs
        runs += 1
        if runs == 2:
            second.set()
            await asyncio.Event().wait()
        raise end

    supervisor = LoopSupervisor(
        (Loop(name="fragile", run=fragile),), backoff=Backoff(first_s=0.001, longest_s=1)
    )
    async with supervisor.running(), asyncio.timeout(5):
        await second.wait()
    assert supervisor.restarts == {"fragile": 1}


async def test_loops_have_ended_when_the_block_is_left() -> None:
    ended = []

    async def careful() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    async with LoopSupervisor((Loop(name="careful", run=careful),)).running():
        await asyncio.sleep(0)
    assert ended == [True]


async def test_what_queues_promise_survives_the_loss_of_redis(
    database: Database, environment: EnvironmentRef
) -> None:
    definitions, tenants = QueueDefinitions(database), Tenants(database)
    queue = environment.queue("orders: ✓")
    spec = QueueSpec(
        name=queue.queue,
        ordering=Ordering.FIFO,
        concurrency=3,
        retention=Retention(max_depth=2),
        delivery=DeliveryPolicy(max_attempts=7),
        action=DeliverTo(url="https://example.com/hook", secrets=("S",)),
    )
    await definitions.define(queue, spec)
    await definitions.pause(queue, paused=True)
    await tenants.limit(environment, 5)
    kept = await definitions.find(queue)
    assert kept is not None
    assert kept.spec == spec
    empty = MemoryBroker()
    assert await restore(empty, definitions=definitions, tenants=tenants) == 1
    state = await empty.state(queue)
    assert (state.limit, state.paused, state.environment_limit) == (3, True, 5)


async def test_an_empty_or_foreign_redis_is_noticed(database: Database) -> None:
    redis = LivingBroker()
    epochs = Epochs(database, redis)
    await epochs.agree()
    await epochs.check()
    for other in (None, "another life"):
        redis.name = other
        with pytest.raises(BrokerUnavailable, match="--new-epoch"):
            await epochs.check()
        with pytest.raises(BrokerUnavailable):
            await epochs.agree()
    await epochs.agree(accept_loss=True)
    await epochs.check()


async def test_two_processes_agree_on_the_first_life(database: Database) -> None:
    redis = LivingBroker()
    await asyncio.gather(*(Epochs(database, redis).agree() for _ in range(5)))
    await Epochs(database, redis).check()


async def test_a_process_with_another_number_of_shards_refuses_to_start_and_leaves_no_trace(
    database: Database,
) -> None:
    redis = LivingBroker(shards=4)
    await Epochs(database, redis).agree()
    assert redis.written == 4
    redis.shards = 8
    del redis.held
    for forget in (False, True):
        # A Redis of before the number was written, and PostgreSQL knows it.
        redis.written = None if forget else redis.written
        with pytest.raises(Misconfigured, match="over 4 shards, and `WEIR_SHARDS` is 8 here; set it to 4"):
            await Epochs(database, redis).agree()
        assert redis.written == (None if forget else 4)
    assert not hasattr(redis, "held")
    redis.shards = 4
    await Epochs(database, redis).agree()


async def test_an_empty_redis_may_begin_with_another_number_of_shards(database: Database) -> None:
    await Epochs(database, LivingBroker(shards=4)).agree()
    empty = LivingBroker(shards=8)
    await Epochs(database, empty).agree(accept_loss=True)
    assert empty.written == 8
    empty.shards = 4
    with pytest.raises(Misconfigured, match="over 8 shards"):
        await Epochs(database, empty).agree()


async def test_the_first_token_is_kept_privately_and_replaced_when_it_ends(
    database: Database, tmp_path: Path
) -> None:
    tokens, path = Tokens(database), tmp_path / "admin.token"
    text = await keep_token(tokens, path, ADMIN)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert await keep_token(tokens, path, ADMIN) == text
    principal = await CachedAuthenticator(tokens).authenticate(text)
    assert principal.choose() == DEFAULT
    await tokens.revoke(principal.token_id, by=principal)
    assert await keep_token(tokens, path, ADMIN) != text


async def test_a_shard_that_is_away_keeps_no_other_from_its_sweeps_and_heartbeats() -> None:
    class HalfAway(MemoryBroker):
        """The first shard does not answer."""

        swept, beaten = asyncio.Event(), asyncio.Event()

        async def sweep(self, shard: int) -> Any:
            if shard == 0:
                raise BrokerUnavailable("away")
            self.swept.set()
            return await super().sweep(shard)

        async def heartbeat(self, shard: int) -> Any:
            if shard == 0:
                await asyncio.Event().wait()
            self.beaten.set()

    broker = HalfAway(shards=2)
    async with LoopSupervisor(
        (Loop(name="sweeper", run=Sweeper(broker).run), Loop(name="heartbeat", run=Heart(broker).run))
    ).running():
        async with asyncio.timeout(30):
            await broker.swept.wait()
            await broker.beaten.wait()


async def test_the_sweeper_returns_lapsed_leases(
    environment: EnvironmentRef, manual_clock: ManualClock
) -> None:
    broker = MemoryBroker(clock=manual_clock)
    queue = environment.queue("q")
    await broker.define(queue, QueueSpec(name="q", delivery=DeliveryPolicy(lease_ms=1_000)))
    await broker.enqueue(queue, [NewMessage(payload=b"1")])
    await broker.dequeue(queue, consumer="c")
    manual_clock.advance(2_000)
    for shard in range(broker.shards):
        await Sweeper(broker).sweep(shard)
    assert (await broker.state(queue)).running == 0


async def test_the_heart_beats_for_a_stuck_queue(
    environment: EnvironmentRef, manual_clock: ManualClock
) -> None:
    broker = MemoryBroker(clock=manual_clock)
    queue = environment.queue("q")
    await broker.define(queue, QueueSpec(name="q"))
    await broker.enqueue(queue, [NewMessage(payload=b"1")])
    manual_clock.advance(60_000)
    before = len(broker.events)
    beating = asyncio.create_task(Heart(broker, every_s=60).run())
    for _ in range(100):
        await asyncio.sleep(0)
    beating.cancel()
    assert len(broker.events) == before + 1
