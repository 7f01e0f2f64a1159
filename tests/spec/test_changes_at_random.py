"""Random changes at once, with failures and kills: afterwards the broker equals PostgreSQL."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from support.waiting import until
from weir.control.changes import THE_LIMIT, Changes, Risks, mark_untold
from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.control.spec_plans import SpecText
from weir.control.spec_register import SpecRegister
from weir.control.tenants import Tenants
from weir.errors import BrokerUnavailable, ControlUnavailable, WeirError
from weir.model.names import EnvironmentRef
from weir.serve.hooks import open_apps, open_specs
from weir.settings import WorkerSettings
from weir.spec.ir import QueueSpec
from weir.testing.memory import MemoryBroker

NAMES = [f"q{number}" for number in range(8)]


class FailingBroker:
    """A broker that fails now and then, before or after it did what it was asked for."""

    def __init__(self, inner: MemoryBroker, dice: random.Random) -> None:
        self.inner = inner
        self.dice = dice
        self.share = 0.1

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.inner, name)
        if name not in ("define", "forget", "limit", "pause", "resume"):
            return verb

        async def failing(*args: Any) -> Any:
            moment = self.dice.random()
            if moment < self.share / 2:
                raise BrokerUnavailable("away")
            answer = await verb(*args)
            if moment < self.share:
                raise BrokerUnavailable("the reply is lost")
            if moment < 2 * self.share:
                # The process ends here: nothing of it repairs anything.
                raise asyncio.CancelledError
            return answer

        return failing


class World:
    def __init__(self, database: Database, environment: EnvironmentRef, seed: int) -> None:
        self.dice = random.Random(seed)
        self.database, self.environment = database, environment
        self.memory = MemoryBroker()
        self.broker = FailingBroker(self.memory, self.dice)
        # Two processes.
        self.specs = [open_specs(database, self.broker, WorkerSettings()) for _ in range(2)]  # type: ignore[arg-type]
        self.definitions = QueueDefinitions(database)

    def queues(self) -> str:
        chosen = self.dice.sample(NAMES, self.dice.randint(0, 5))
        orders = ("unordered", "fifo")
        return " ".join(
            f"queue {name} {{ concurrency: {self.dice.randint(1, 9)} ordering: {self.dice.choice(orders)} }}"
            for name in chosen
        )

    async def apply(self, specs: SpecRegister) -> None:
        limit = self.dice.choice(["", f"concurrency: {self.dice.randint(1, 9)}"])
        lost = self.dice.random() < 0.15

        async def record(name: str, revision: int) -> None:
            if lost:
                raise ControlUnavailable("the connection is lost")

        text = SpecText(source=f"app Shop {{ {limit} {self.queues()} }}")
        await specs.apply(self.environment, text, actor="test", record=record)

    async def declare(self, specs: SpecRegister) -> None:
        text = SpecText(source=f"app Code {{ {self.queues()} }}")
        await open_apps(self.database, specs).declare(self.environment, "Code", text, actor="test")

    async def define(self, specs: SpecRegister) -> None:
        name = self.dice.choice(NAMES)
        known = await self.definitions.find(self.environment.queue(name))
        spec = known.spec if known else QueueSpec(name=name)
        async with specs.changes.change(self.environment):
            await self.definitions.define(self.environment.queue(name), spec)
        await specs.changes.tell(self.environment)

    async def remove(self, specs: SpecRegister) -> None:
        queue = self.environment.queue(self.dice.choice(NAMES))
        async with specs.changes.change(self.environment, risks=Risks(removed=(queue.queue,))):
            await self.definitions.check_unused(queue)
            await self.definitions.forget(queue)
        await specs.changes.tell(self.environment)

    async def limit(self, specs: SpecRegister) -> None:
        async with specs.changes.change(self.environment) as change:
            await Tenants(self.database).limit(self.environment, self.dice.randint(1, 9))
            await mark_untold(change.connection, self.environment, [THE_LIMIT])
        await specs.changes.tell(self.environment)

    async def one(self, specs: SpecRegister) -> None:
        """One change, which may end as if its process was killed."""
        deeds: list[Callable[[SpecRegister], Awaitable[None]]] = [
            self.apply,
            self.apply,
            self.declare,
            self.define,
            self.remove,
            self.limit,
        ]
        work = asyncio.ensure_future(self.dice.choice(deeds)(specs))
        killed = self.dice.random() < 0.2
        if killed:
            await asyncio.wait([work], timeout=self.dice.random() * 0.15)
            work.cancel()
        with suppress(WeirError, asyncio.CancelledError):
            await work


@pytest.mark.parametrize("pairs", [20, pytest.param(200, marks=pytest.mark.slow)])
async def test_after_random_changes_the_broker_equals_postgresql(
    database: Database, environment: EnvironmentRef, monkeypatch: pytest.MonkeyPatch, pairs: int
) -> None:
    async def dead(*_: object) -> None:
        """A process that is killed repairs nothing."""

    monkeypatch.setattr(Changes, "_release", dead)
    world = World(database, environment, seed=pairs)
    for number in range(pairs):
        await asyncio.gather(*(world.one(specs) for specs in world.specs))
        if number % 4 == 3:
            await settle(world)
            await assert_equal(world)


async def settle(world: World) -> None:
    """What another process does when the stores answer again."""
    async with world.database.connection() as connection:
        # Nobody waits a minute for a process that ended: the test lets the minute pass.
        await connection.execute("UPDATE weir.untold_queues SET ready_at = now()")
    loop = asyncio.create_task(Changes(world.database, world.memory).run())
    await until(lambda: nothing_is_untold(world.database), within_s=60)
    loop.cancel()


async def nothing_is_untold(database: Database) -> bool:
    async with database.connection() as connection:
        cursor = await connection.execute("SELECT count(*) AS untold FROM weir.untold_queues")
        return await cursor.fetchone() == {"untold": 0}


async def assert_equal(world: World) -> None:
    definitions = {one.queue.queue: one.spec for one in await world.definitions.of(world.environment)}
    states = {state.queue.queue: state for state in await world.memory.states(world.environment)}
    assert sorted(states) == sorted(definitions)
    assert {name: state.limit for name, state in states.items()} == {
        name: spec.concurrency for name, spec in definitions.items()
    }
    (tenant,) = [one async for one in Tenants(world.database).everything()]
    assert {state.environment_limit for state in states.values()} <= {tenant.concurrency}
    # Nothing is left that no plan shows: the definitions belong to the spec, to the app, or to the API.
    applied = await world.specs[0].current(world.environment)
    if applied is not None:
        text = SpecText(source=applied.source, file=applied.file)
        sound = open_specs(world.database, world.memory, WorkerSettings())
        if (await sound.plan(world.environment, text)).allowed:
            assert (await sound.apply(world.environment, text, actor="test")).told
            assert (await sound.plan(world.environment, text)).changes == ()
