"""Changes of queues are whole, wait for each other, and reach the broker whatever happens in between."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from support.waiting import until
from weir.broker.redis import RedisBroker
from weir.broker.runner import RedisConnection
from weir.channels.channels import Channels
from weir.control.app_register import AppRegister
from weir.control.changes import Changed, Changes, Risks
from weir.control.current_specs import CurrentSpecs
from weir.control.database import Database
from weir.control.queue_definitions import QueueDefinitions
from weir.control.spec_plans import SpecText
from weir.control.spec_register import KEPT_REVISIONS, SpecRegister
from weir.control.tenants import Tenants
from weir.errors import BrokerUnavailable, Conflict, ControlUnavailable, InvalidInput, Overloaded
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.schedules.register import Schedules
from weir.serve.hooks import open_apps, open_specs
from weir.settings import WorkerSettings
from weir.spec.ir import ChannelSpec, ConsumerSpec, Ordering, QueueSpec, ScheduleSpec, Timing
from weir.testing.memory import MemoryBroker

ALL = [f"q{number}" for number in range(6)]


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def specs(database: Database, broker: MemoryBroker) -> SpecRegister:
    return open_specs(database, broker, WorkerSettings())


@pytest.fixture
def apps(database: Database, specs: SpecRegister) -> AppRegister:
    return open_apps(database, specs)


def spec_of(*queues: str, more: str = "") -> SpecText:
    return SpecText(source="app Shop { " + " ".join(f"queue {name} {{}}" for name in queues) + more + " }")


async def apply(
    specs: SpecRegister, environment: EnvironmentRef, text: SpecText, **options: object
) -> object:
    return await specs.apply(environment, text, actor="test", **options)  # type: ignore[arg-type]


async def queues_of(broker: MemoryBroker, environment: EnvironmentRef) -> list[str]:
    return [state.queue.queue for state in await broker.states(environment)]


async def definitions_of(database: Database, environment: EnvironmentRef) -> list[str]:
    return [one.queue.queue for one in await QueueDefinitions(database).of(environment)]


async def assert_equal(database: Database, broker: MemoryBroker, environment: EnvironmentRef) -> None:
    """The broker has the queues of PostgreSQL, and nothing is left to tell."""
    assert await queues_of(broker, environment) == await definitions_of(database, environment)
    assert await nothing_is_untold(database)


async def nothing_is_untold(database: Database) -> bool:
    async with database.connection() as connection:
        cursor = await connection.execute("SELECT count(*) AS untold FROM weir.untold_queues")
        return await cursor.fetchone() == {"untold": 0}


async def has_queues(broker: MemoryBroker, environment: EnvironmentRef, names: list[str]) -> bool:
    return await queues_of(broker, environment) == names


async def test_a_queue_that_gets_a_message_meanwhile_keeps_all_queues(
    specs: SpecRegister, broker: MemoryBroker, database: Database, environment: EnvironmentRef
) -> None:
    await apply(specs, environment, spec_of(*ALL))
    forget = broker.forget

    async def late(queue: object) -> None:
        if queue == environment.queue("q3"):
            await broker.enqueue(queue, [NewMessage(payload=b"1")])
        await forget(queue)  # type: ignore[arg-type]

    broker.forget = late  # type: ignore[assignment, method-assign]
    with pytest.raises(Conflict, match="still holds 1 message"):
        await apply(specs, environment, spec_of("q0", more="concurrency: 2"))
    assert await queues_of(broker, environment) == ALL
    assert (await specs.current(environment)).revision == 1
    assert (await broker.state(environment.queue("q0"))).environment_limit is None
    await assert_equal(database, broker, environment)


async def test_a_paused_queue_whose_removal_failed_is_still_paused(
    specs: SpecRegister, broker: MemoryBroker, database: Database, environment: EnvironmentRef
) -> None:
    await apply(specs, environment, spec_of("a", "b"))
    await QueueDefinitions(database).pause(environment.queue("a"), paused=True)
    await specs.changes.tell(environment)
    await broker.enqueue(environment.queue("b"), [NewMessage(payload=b"1")])
    with pytest.raises(Conflict):
        async with specs.changes.change(environment, risks=Risks(removed=("a", "b"))):
            pass
    assert (await broker.state(environment.queue("a"))).paused


async def test_an_order_that_cannot_change_changes_nothing(
    specs: SpecRegister, broker: MemoryBroker, database: Database, environment: EnvironmentRef
) -> None:
    await apply(specs, environment, spec_of("a", "b"))
    define = broker.define

    async def late(queue: object, spec: QueueSpec) -> None:
        if spec.ordering is Ordering.FIFO and spec.name == "b":
            await broker.enqueue(queue, [NewMessage(payload=b"1")])
        await define(queue, spec)  # type: ignore[arg-type]

    broker.define = late  # type: ignore[assignment, method-assign]
    ordered = SpecText(source="app Shop { queue a { ordering: fifo } queue b { ordering: fifo } }")
    with pytest.raises(Conflict, match="its ordering cannot change"):
        await apply(specs, environment, ordered)
    found = {one.queue.queue: one.spec.ordering for one in await QueueDefinitions(database).of(environment)}
    assert found == {"a": Ordering.UNORDERED, "b": Ordering.UNORDERED}
    broker.define = define  # type: ignore[method-assign]
    await broker.enqueue(environment.queue("a"), [NewMessage(payload=b"1")])
    await define(environment.queue("a"), QueueSpec(name="a"))
    await assert_equal(database, broker, environment)


async def test_a_change_that_postgresql_loses_changes_nothing_in_the_broker(
    specs: SpecRegister, broker: MemoryBroker, database: Database, environment: EnvironmentRef
) -> None:
    await apply(specs, environment, spec_of("old"))

    async def lost(name: str, revision: int) -> None:
        raise ControlUnavailable("gone")

    with pytest.raises(ControlUnavailable):
        await apply(specs, environment, spec_of("new", more="concurrency: 2"), record=lost)
    await until(lambda: nothing_is_untold(database))
    assert await queues_of(broker, environment) == ["old"]
    await assert_equal(database, broker, environment)


async def test_the_broker_follows_when_it_answers_again(
    specs: SpecRegister, broker: MemoryBroker, database: Database, environment: EnvironmentRef
) -> None:
    define = broker.define

    async def away(queue: object, spec: QueueSpec) -> None:
        raise BrokerUnavailable("away")

    broker.define = away  # type: ignore[assignment, method-assign]
    applied = await apply(specs, environment, spec_of("a", "b", more="concurrency: 3"))
    assert applied.told is False
    assert await queues_of(broker, environment) == []
    broker.define = define  # type: ignore[method-assign]
    loop = asyncio.create_task(Changes(database, broker).run())
    await until(lambda: has_queues(broker, environment, ["a", "b"]))
    loop.cancel()
    assert (await broker.state(environment.queue("a"))).environment_limit == 3
    await assert_equal(database, broker, environment)


@pytest.mark.parametrize("moment", ["forget", "define"])
async def test_a_process_that_is_killed_leaves_nothing_half_done(
    redis_url: str, database_url: str, database: Database, environment: EnvironmentRef, moment: str
) -> None:
    """Killed between the broker and the commit, and between the commit and the broker."""
    broker = RedisBroker(RedisConnection(url=redis_url))
    try:
        specs = SpecRegister(database, broker)
        await apply(specs, environment, spec_of("a", "b"))
        names = json.dumps([environment.organization, environment.project, environment.environment])
        command = [sys.executable, "-c", KILLED, redis_url, database_url, names, moment]
        ended = await asyncio.to_thread(subprocess.run, command, timeout=60, check=False)
        assert ended.returncode == -signal.SIGKILL
        async with database.connection() as connection:
            # Nobody waits a minute for a process that ended: the test lets the minute pass.
            await connection.execute("UPDATE weir.untold_queues SET ready_at = now()")
        loop = asyncio.create_task(Changes(database, broker).run())
        wanted = ["a", "b"] if moment == "forget" else ["b", "c"]
        await until(lambda: has_queues(broker, environment, wanted))
        loop.cancel()
        assert await definitions_of(database, environment) == wanted
        assert (await specs.plan(environment, spec_of(*wanted))).changes == ()
    finally:
        await broker.aclose()


KILLED = textwrap.dedent(
    """
    import asyncio, json, os, signal, sys
    from weir.broker.redis import RedisBroker
    from weir.control.database import Database
    from weir.control.spec_plans import SpecText
    from weir.control.spec_register import SpecRegister
    from weir.model.names import EnvironmentRef
    from weir.broker.runner import RedisConnection

    class Broker(RedisBroker):
        async def forget(self, queue):
            await super().forget(queue)
            if sys.argv[4] == "forget":
                os.kill(os.getpid(), signal.SIGKILL)

        async def define(self, queue, spec):
            os.kill(os.getpid(), signal.SIGKILL)

    async def main():
        organization, project, environment = json.loads(sys.argv[3])
        scope = EnvironmentRef(organization=organization, project=project, environment=environment)
        async with Database(sys.argv[2]) as database:
            specs = SpecRegister(database, Broker(RedisConnection(url=sys.argv[1])))
            await specs.apply(scope, SpecText(source="app Shop { queue b {} queue c {} }"), actor="test")

    asyncio.run(main())
    """
)


async def both(*works: Awaitable[object]) -> list[BaseException | object]:
    return await asyncio.gather(*works, return_exceptions=True)


async def test_two_applies_at_once_leave_queues_of_one_spec(
    database: Database, broker: MemoryBroker, environment: EnvironmentRef
) -> None:
    one, two = (SpecRegister(database, broker) for _ in range(2))
    for _ in range(5):
        answers = await both(
            apply(one, environment, spec_of("a", "x")), apply(two, environment, spec_of("b", "x"))
        )
        assert not [answer for answer in answers if isinstance(answer, BaseException)]
        left = await definitions_of(database, environment)
        assert left in (["a", "x"], ["b", "x"])
        assert (await one.plan(environment, spec_of(*left))).changes == ()
        await assert_equal(database, broker, environment)


async def test_two_owners_at_once_are_one_owner_and_one_refusal(
    database: Database, broker: MemoryBroker, environment: EnvironmentRef
) -> None:
    places = [open_specs(database, broker, WorkerSettings()) for _ in range(3)]
    apps = [open_apps(database, specs) for specs in places]
    for number in range(4):
        queue = f"mail{number}"
        shop, blog = (SpecText(source=f"app {name} {{ queue {queue} {{}} }}") for name in ("Shop", "Blog"))
        answers = await both(
            apps[0].declare(environment, "Shop", shop, actor="test"),
            apps[1].declare(environment, "Blog", blog, actor="test"),
            apply(places[2], environment, spec_of(queue)),
        )
        refused = [answer for answer in answers if isinstance(answer, Conflict)]
        assert len(refused) == 2, answers
        assert all("belongs to the" in answer.message for answer in refused)
        await apply(places[2], environment, spec_of())


async def test_a_limit_that_no_spec_set_stays(
    specs: SpecRegister, broker: MemoryBroker, database: Database, environment: EnvironmentRef
) -> None:
    await apply(specs, environment, spec_of("a"))

    async def limit() -> int | None:
        return (await broker.state(environment.queue("a"))).environment_limit

    await Tenants(database).limit(environment, 3)
    await broker.limit(environment, 3)
    await apply(specs, environment, spec_of("a", "b"))
    assert await limit() == 3
    limited = spec_of("a", "b", more="concurrency: 5")
    (change,) = (await specs.plan(environment, limited)).changes
    assert (change.path, change.before, change.after) == (("concurrency",), 3, 5)
    await apply(specs, environment, limited)
    assert await limit() == 5
    (change,) = (await specs.plan(environment, spec_of("a", "b"))).changes
    assert (change.before, change.after) == (5, None)
    await apply(specs, environment, spec_of("a", "b"))
    assert await limit() is None


async def use_by_channel(database: Database, broker: MemoryBroker, environment: EnvironmentRef) -> None:
    consumer = ConsumerSpec(id="c", name="c", queue="used")
    await Channels(database).put(
        environment, ChannelSpec(id="news", name="news", consumers=(consumer,)), by="test"
    )


async def use_by_schedule(database: Database, broker: MemoryBroker, environment: EnvironmentRef) -> None:
    schedule = ScheduleSpec(name="nightly", queue="used", timing=Timing(every_ms=3_600_000))
    await Schedules(database, broker).create(environment, schedule)


async def use_by_dead_letters(database: Database, broker: MemoryBroker, environment: EnvironmentRef) -> None:
    spec = QueueSpec(name="other")
    spec = replace(spec, delivery=replace(spec.delivery, dead_letter_queue="used"))
    await QueueDefinitions(database).define(environment.queue("other"), spec)


USES = {
    "channel `news`": use_by_channel,
    "schedule `nightly`": use_by_schedule,
    "queue `other`": use_by_dead_letters,
}


@pytest.mark.parametrize("user", USES)
async def test_a_queue_that_something_else_uses_is_not_removed(
    specs: SpecRegister, broker: MemoryBroker, database: Database, environment: EnvironmentRef, user: str
) -> None:
    await apply(specs, environment, spec_of("used", "kept"))
    use: Callable[..., Awaitable[None]] = USES[user]
    await use(database, broker, environment)
    with pytest.raises(Conflict, match=f"queue `used` is used by the {user}"):
        await apply(specs, environment, spec_of("kept"))
    with pytest.raises(Conflict, match=f"queue `used` is used by the {user}"):
        await QueueDefinitions(database).check_unused(environment.queue("used"))


PARTS = {
    "webhook W": "webhook W { queue: used }",
    "chain of `kept`": "",
    "channel": "channel C { consumer c { queue: used } }",
    "alert": "alert Deep { when: backlog > 5, queue: used }",
}


@pytest.mark.parametrize("part", PARTS)
async def test_a_queue_that_the_spec_uses_is_not_removed_alone_but_with_its_user(
    specs: SpecRegister, database: Database, environment: EnvironmentRef, part: str
) -> None:
    chain = "enqueue: used" if part == "chain of `kept`" else ""
    text = f"app Shop {{ queue used {{}} queue kept {{ {chain} }} {PARTS[part]} }}"
    await apply(specs, environment, SpecText(source=text))
    with pytest.raises(Conflict, match="queue `used` is used by the "):
        await QueueDefinitions(database).check_unused(environment.queue("used"))
    await apply(specs, environment, spec_of("kept"))
    assert await definitions_of(database, environment) == ["kept"]


async def test_a_plan_of_another_revision_is_not_applied(
    specs: SpecRegister, database: Database, environment: EnvironmentRef
) -> None:
    await apply(specs, environment, spec_of("a"))
    found = await specs.plan(environment, spec_of("b"))
    await QueueDefinitions(database).define(environment.queue("c"), QueueSpec(name="c"))
    with pytest.raises(Changed, match="plan again"):
        await apply(specs, environment, spec_of("b"), expected=found.revision)
    assert await definitions_of(database, environment) == ["a", "c"]
    found = await specs.plan(environment, spec_of("b"))
    await apply(specs, environment, spec_of("b"), expected=found.revision)
    assert await definitions_of(database, environment) == ["b", "c"]


async def test_revisions_are_bounded_and_the_same_text_is_none(
    specs: SpecRegister, environment: EnvironmentRef
) -> None:
    for number in range(KEPT_REVISIONS + 3):
        await apply(specs, environment, spec_of(f"q{number}"))
    assert (await apply(specs, environment, spec_of(f"q{KEPT_REVISIONS + 2}"))).revision == KEPT_REVISIONS + 3
    history = await specs.history(environment)
    assert [one.revision for one in history] == list(range(KEPT_REVISIONS + 3, 3, -1))
    kept = await specs.revision(environment, 4)
    assert kept is not None
    assert "queue q3 " in kept.source
    assert await specs.revision(environment, 3) is None


async def test_no_connection_is_held_while_a_spec_is_planned(
    specs: SpecRegister, database: Database, environment: EnvironmentRef
) -> None:
    looked = []
    in_box = specs.in_box

    async def look(*args: object) -> object:
        await until(lambda: database.state().busy == 0, within_s=5)
        looked.append(args[1])
        return await in_box(*args)  # type: ignore[arg-type]

    specs.in_box = look  # type: ignore[assignment, method-assign]
    await apply(specs, environment, spec_of("a"))
    assert len(looked) == 1


async def test_more_than_a_few_plans_of_one_environment_are_refused_at_once(
    specs: SpecRegister, environment: EnvironmentRef
) -> None:
    answers = await both(*(specs.plan(environment, spec_of("a")) for _ in range(12)))
    refused = [answer for answer in answers if isinstance(answer, Overloaded)]
    assert 0 < len(refused) < 12
    assert all(answer.retry_after_s for answer in refused)
    assert (await specs.plan(environment, spec_of("a"))).allowed


async def test_a_registry_reads_only_what_is_new(
    specs: SpecRegister, database: Database, environment: EnvironmentRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(environment, environment="another")
    await apply(specs, other, spec_of("far", more=" webhook Far { queue: far }"))
    await apply(specs, environment, spec_of("a", "b", more=" webhook Near { queue: a }"))
    registry = CurrentSpecs(database)
    assert await registry.refresh()
    assert sorted(registry.snapshot.hooks) == ["Far", "Near"]
    read: list[list[dict[str, object]]] = []
    fetch = database.fetch

    async def watch(query: object, **parameters: object) -> object:
        rows = await fetch(query, **parameters)  # type: ignore[arg-type]
        if "names" in (rows[0] if rows else {}):
            read.append(rows)
        return rows

    monkeypatch.setattr(database, "fetch", watch)
    await QueueDefinitions(database).define(environment.queue("b"), QueueSpec(name="b", concurrency=9))
    assert await registry.refresh()
    ((row,),) = read
    assert (row["environment"], sorted(json.loads(str(row["queues"])))) == (environment.environment, ["b"])
    assert registry.snapshot.queues[environment.queue("b")].concurrency == 9
    assert sorted(registry.snapshot.hooks) == ["Far", "Near"]
    assert not await registry.refresh()
    await apply(specs, environment, spec_of("a"))
    assert await registry.refresh()
    assert sorted(registry.snapshot.hooks) == ["Far"]
    assert sorted(queue.queue for queue in registry.snapshot.queues) == ["a", "far"]


async def test_a_registry_sees_a_change_that_is_committed_after_a_later_one(
    database: Database, environment: EnvironmentRef
) -> None:
    other = replace(environment, environment="another")
    definitions, registry = QueueDefinitions(database), CurrentSpecs(database)
    for scope in (environment, other):
        await definitions.define(scope.queue("q"), QueueSpec(name="q"))
    changes = Changes(database, MemoryBroker())
    async with changes.change(environment):
        await definitions.define(environment.queue("q"), QueueSpec(name="q", concurrency=1))
        await asyncio.create_task(definitions.define(other.queue("q"), QueueSpec(name="q", concurrency=2)))
        await asyncio.create_task(registry.refresh())
        assert registry.snapshot.queues[other.queue("q")].concurrency == 2
    assert await registry.refresh()
    assert registry.snapshot.queues[environment.queue("q")].concurrency == 1


async def test_a_plan_refuses_the_queue_of_another_channel_and_the_schedule_of_the_spec(
    specs: SpecRegister,
    apps: AppRegister,
    database: Database,
    environment: EnvironmentRef,
    broker: MemoryBroker,
) -> None:
    await apply(specs, environment, spec_of("used", more=" schedule Nightly { every: 1h, queue: used }"))
    await use_by_channel(database, broker, environment)
    mine = "channel mine { consumer c { queue: used } } schedule Nightly { every: 1h, queue: used }"
    found = await specs.plan(environment, spec_of("used", more=f" {mine}"))
    assert found.refusals == (
        "the queue `used` belongs to a consumer of the channel `news`; "
        "give consumer `c` of channel `mine` another queue",
    )
    text = SpecText(source="app Code { queue own {} schedule Nightly { every: 1h, queue: own } }")
    found = await apps.plan(environment, "Code", text)
    assert found.refusals == (
        "schedule `Nightly` belongs to the spec `Shop`; use another name, or take it out there",
    )


async def test_a_schedule_that_comes_while_its_queue_is_removed_is_not_left_without_one(
    specs: SpecRegister, broker: MemoryBroker, database: Database, environment: EnvironmentRef
) -> None:
    for _ in range(4):
        await apply(specs, environment, spec_of("used", "kept"))
        removed, scheduled = await both(
            apply(specs, environment, spec_of("kept")), use_by_schedule(database, broker, environment)
        )
        assert isinstance(removed, Conflict) != isinstance(scheduled, InvalidInput), (removed, scheduled)
        if isinstance(removed, Conflict):
            await Schedules(database, broker).delete(environment, "nightly")


async def test_a_queue_waits_only_for_itself_until_the_broker_knows_it(
    specs: SpecRegister, broker: MemoryBroker, database: Database, environment: EnvironmentRef
) -> None:
    definitions = QueueDefinitions(database)
    for name in ("slow", "quick"):
        await definitions.define(environment.queue(name), QueueSpec(name=name))
    async with database.transaction() as connection:
        # Another process tells the broker about it right now.
        await connection.execute("SELECT FROM weir.untold_queues WHERE queue = 'slow' FOR UPDATE")
        assert await asyncio.create_task(specs.changes.tell(environment, "quick"))
        assert await queues_of(broker, environment) == ["quick"]
    assert await specs.changes.tell(environment)
    assert await queues_of(broker, environment) == ["quick", "slow"]


async def test_a_queue_that_the_broker_refuses_does_not_hold_up_the_others(
    specs: SpecRegister, broker: MemoryBroker, database: Database, environment: EnvironmentRef
) -> None:
    await apply(specs, environment, spec_of("odd"))
    await broker.enqueue(environment.queue("odd"), [NewMessage(payload=b"1")])
    # Not by a way that asks the broker first.
    await QueueDefinitions(database).define(
        environment.queue("odd"), QueueSpec(name="odd", ordering=Ordering.FIFO)
    )
    await QueueDefinitions(database).define(environment.queue("other"), QueueSpec(name="other"))
    assert await specs.changes.tell(environment)
    assert await queues_of(broker, environment) == ["odd", "other"]
    async with database.connection() as connection:
        cursor = await connection.execute(
            "SELECT queue, tries, ready_at > now() AS later FROM weir.untold_queues"
        )
        assert await cursor.fetchall() == [{"queue": "odd", "tries": 1, "later": True}]


async def test_a_start_reads_every_queue_and_no_change_comes_in_between(
    specs: SpecRegister, database: Database, environment: EnvironmentRef
) -> None:
    names = [f"q{number:03}" for number in range(230)]
    await apply(specs, environment, spec_of(*names, more=" concurrency: 4"))
    definitions, tenants = QueueDefinitions(database), Tenants(database)
    changing: list[asyncio.Task[None]] = []
    read = []
    async for definition in definitions.everything():
        read.append(definition.queue.queue)
        if not changing:
            changed = QueueSpec(name="q050", concurrency=9)
            changing.append(asyncio.create_task(definitions.define(environment.queue("q050"), changed)))
            await until(lambda: is_waiting(database))
        assert len(read) > 100 or not changing[0].done()
    assert read == names
    await changing[0]
    assert [one.concurrency async for one in tenants.everything()] == [4]


async def is_waiting(database: Database) -> bool:
    """Whether a statement waits for a lock."""
    async with database.connection() as connection:
        cursor = await connection.execute(
            "SELECT count(*) AS waiting FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return await cursor.fetchone() == {"waiting": 1}
