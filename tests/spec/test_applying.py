"""Applying: atomic, with a history, refused where messages would be lost, seen by every process."""

from __future__ import annotations

import asyncio
import json

import pytest

from support.waiting import until
from weir.alerts.alert_channels import AlertChannels, channel_of
from weir.control.current_specs import CurrentSpecs
from weir.control.queue_definitions import QueueDefinitions
from weir.control.spec_plans import SpecText
from weir.control.spec_register import SpecRegister
from weir.errors import Conflict, InvalidInput, NotFound
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.outbound.address_guard import GuardPolicy
from weir.serve.hooks import open_specs
from weir.settings import WorkerSettings
from weir.spec.ir import MapToCommand
from weir.spec.language import read_spec, spec_of
from weir.testing.memory import MemoryBroker

FIRST = """
app Shop {
  concurrency: 7
  queue Orders { ordering: fifo  map_to: command Order.Place }
  queue Mail {}
  webhook Shop { queue: Orders }
}
"""


@pytest.fixture
def broker():
    return MemoryBroker()


@pytest.fixture
def specs(database, broker):
    return SpecRegister(database, broker)


async def apply(specs, environment, text):
    return await specs.apply(environment, SpecText(source=text, file="shop.weir"), actor="test")


async def test_an_applied_spec_defines_its_queues_and_is_kept_with_its_source(
    specs, broker, database, environment
):
    applied = await apply(specs, environment, FIRST)
    assert applied.revision == 1
    assert applied.hooks == {"Shop": True}
    assert [state.queue.queue for state in await broker.states(environment)] == ["Mail", "Orders"]
    assert (await broker.state(environment.queue("Mail"))).environment_limit == 7
    current = await specs.current(environment)
    assert (current.source, spec_of(json.loads(current.spec))) == (FIRST, read_spec(FIRST))
    definition = await QueueDefinitions(database).find(environment.queue("Orders"))
    assert definition.spec.action == MapToCommand(entity="Order", command="Place")


async def test_a_queue_that_holds_messages_is_not_removed_and_nothing_changes(specs, broker, environment):
    await apply(specs, environment, FIRST)
    await broker.enqueue(environment.queue("Mail"), [NewMessage(payload=b"1")])
    smaller = FIRST.replace("queue Mail {}", "").replace("concurrency: 7", "concurrency: 9")
    with pytest.raises(Conflict, match="still holds 1 message;"):
        await apply(specs, environment, smaller)
    assert (await specs.current(environment)).revision == 1
    assert (await broker.state(environment.queue("Mail"))).environment_limit == 7


async def test_a_removed_queue_is_gone_from_broker_and_definitions(specs, broker, database, environment):
    await apply(specs, environment, FIRST)
    await apply(specs, environment, FIRST.replace("queue Mail {}", ""))
    with pytest.raises(NotFound):
        await broker.state(environment.queue("Mail"))
    assert await QueueDefinitions(database).find(environment.queue("Mail")) is None
    assert [one.revision for one in await specs.history(environment)] == [2, 1]


async def test_a_companion_that_fails_undoes_the_whole_apply(database, broker, environment):
    async def failing(connection, environment, before, after):
        raise Conflict("no")

    specs = SpecRegister(database, broker, companions=[failing])
    with pytest.raises(Conflict):
        await apply(specs, environment, FIRST)
    assert await specs.current(environment) is None
    assert await broker.states(environment) == []


async def test_a_queue_defined_by_the_api_is_adopted_and_its_changes_are_seen_by_the_plan(
    specs, broker, database, environment
):
    await apply(specs, environment, FIRST)
    changed = read_spec(FIRST.replace("queue Mail {}", "queue Mail { concurrency: 3 }")).queues[1]
    await QueueDefinitions(database).define(environment.queue("Mail"), changed)
    found = await specs.plan(environment, SpecText(source=FIRST))
    assert [(change.path, change.before, change.after) for change in found.changes] == [
        (("concurrency",), 3, None)
    ]


async def test_the_short_address_of_a_webhook_belongs_to_who_asked_first(specs, environment):
    other = type(environment)(organization="other", project="p", environment="e")
    assert (await apply(specs, environment, FIRST)).hooks == {"Shop": True}
    assert (await apply(specs, other, FIRST)).hooks == {"Shop": False}
    await apply(specs, environment, "app Shop {}")
    assert (await apply(specs, other, FIRST)).hooks == {"Shop": True}


async def test_an_alert_that_nobody_would_hear_is_a_warning_until_its_channel_exists(
    specs, database, environment
):
    text = 'app A { queue Q {}  alert Deep { when: backlog > 5  channels: ["ops", "mail"] } }'
    url = {"url": "https://example.com/"}
    ops = channel_of(environment, name="ops", kind="webhook", config=url, policy=GuardPolicy())
    assert len((await specs.plan(environment, SpecText(source=text))).warnings) == 2
    await AlertChannels(database).put(ops)
    (warning,) = (await apply(specs, environment, text)).plan.warnings
    assert warning.startswith("alert `Deep` names the alert channel `mail`, which does not exist")


async def test_the_organization_that_weir_keeps_for_itself_takes_no_spec(specs):
    own = EnvironmentRef(organization="weir", project="p", environment="e")
    with pytest.raises(InvalidInput, match="kept for Weir's own queues"):
        await apply(specs, own, FIRST)


async def test_every_registry_sees_an_apply_without_a_restart(specs, database, environment):
    registry = CurrentSpecs(database, every_s=0.01)
    running = asyncio.create_task(registry.run())
    await apply(specs, environment, FIRST)
    await until(lambda: registry.snapshot.hooks)
    assert registry.snapshot.hooks["Shop"].environment == environment
    assert [queue.queue for queue, _ in registry.snapshot.served_queues()] == ["Orders"]
    await apply(specs, environment, "app Shop { queue Orders { ordering: fifo } }")
    await until(lambda: not registry.snapshot.hooks)
    assert registry.snapshot.served_queues() == []
    running.cancel()


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "169.254.169.254", "[::ffff:10.0.0.1]", "0x7f000001"]
)
async def test_a_delivery_to_a_private_address_is_refused_when_it_is_planned(
    database, broker, environment, host
):
    specs = open_specs(database, broker, WorkerSettings())
    text = f"app Shop {{ queue Out {{ deliver: http://{host}:8080/in }} }}"
    with pytest.raises(Conflict, match=r"queue `Out` delivers to .* is not a public address"):
        await apply(specs, environment, text)
    assert await broker.states(environment) == []


async def test_a_private_address_that_was_opened_may_be_delivered_to(database, broker, environment):
    specs = open_specs(database, broker, WorkerSettings(allowed_subnets=("127.0.0.0/8",)))
    await apply(specs, environment, "app Shop { queue Out { deliver: http://127.0.0.1:8080/in } }")
    assert len(await broker.states(environment)) == 1
