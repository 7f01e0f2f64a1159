"""Apps declare their queues: what belongs to another is refused, and what is not declared any more stays."""

from __future__ import annotations

import pytest

from weir.control.app_register import AppRegister
from weir.control.database import Database
from weir.control.spec_plans import SpecText
from weir.errors import Conflict, InvalidInput
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.serve.hooks import open_apps, open_specs
from weir.settings import WorkerSettings
from weir.testing.memory import MemoryBroker


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def apps(database: Database, broker: MemoryBroker) -> AppRegister:
    return open_apps(database, open_specs(database, broker, WorkerSettings()))


def name_of(text: str) -> str:
    return text.split()[1]


async def declare(apps: AppRegister, environment: EnvironmentRef, text: str) -> tuple[str, ...]:
    """The changes that it made."""
    declared = await apps.declare(environment, name_of(text), SpecText(source=text), actor="test")
    return tuple(f"{one.effect.value} {one.kind} {one.name}" for one in declared.plan.changes)


async def test_the_queue_of_another_app_is_refused_and_nothing_changes(
    apps: AppRegister, broker: MemoryBroker, environment: EnvironmentRef
) -> None:
    await declare(apps, environment, "app Shop { queue mail {} }")
    with pytest.raises(Conflict, match="queue `mail` belongs to the app `Shop`; use another name"):
        await declare(apps, environment, "app Blog { queue posts {} queue mail {} }")
    assert [one.name for one in await apps.of(environment)] == ["Shop"]
    assert [state.queue.queue for state in await broker.states(environment)] == ["mail"]
    assert await declare(apps, environment, "app Shop { queue mail {} }") == ()


async def test_a_queue_that_is_not_declared_any_more_stays_and_another_app_may_have_it(
    apps: AppRegister, broker: MemoryBroker, environment: EnvironmentRef
) -> None:
    await declare(apps, environment, "app Shop { queue mail {} queue bills {} }")
    await broker.enqueue(environment.queue("bills"), [NewMessage(payload=b"1")])
    plan = await apps.plan(environment, "Shop", SpecText(source="app Shop { queue mail {} }"))
    assert (plan.allowed, plan.changes) == (True, ())
    assert plan.warnings == ("queue `bills` is not declared any more; it stays until `weir queue delete`",)
    await declare(apps, environment, "app Shop { queue mail {} }")
    assert (await broker.state(environment.queue("bills"))).depth == 1
    await declare(apps, environment, "app Books { queue bills {} }")
    assert [one.name for one in await apps.of(environment)] == ["Books", "Shop"]


async def test_an_app_declares_neither_webhooks_nor_actions(
    apps: AppRegister, environment: EnvironmentRef
) -> None:
    for text in ("app A { queue q {} webhook W { queue: q } }", "app A { queue q { map_to: command C.D } }"):
        with pytest.raises(InvalidInput, match=r"an app declares queues and schedules only|has an action"):
            await declare(apps, environment, text)
