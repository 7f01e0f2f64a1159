"""A worker on the stores asks how a message ended: the broker forgets the dead, their timelines do not."""

from __future__ import annotations

from tests.deadletters.world import World

from weir.model.ids import new_id
from weir.tasks.broker_backend import BrokerBackend
from weir.workers.timeline import Timelines


async def test_a_message_that_died_is_dead_for_whoever_waits_for_it(world: World) -> None:
    queue = await world.define("tasks")
    backend = BrokerBackend(
        world.broker, world.environment, timelines=Timelines(world.database, world.broker)
    )
    (message_id,) = await world.push(queue, {"n": 1})
    assert (await backend.outcome(message_id)).status == "waiting"
    await world.die(queue, error="the bank said no")
    # Its error is known when the mover has carried it to PostgreSQL; until then nobody may take it for done.
    assert (await backend.outcome(message_id)).status in ("running", "gone")
    await world.move()
    found = await backend.outcome(message_id, wait=5)
    assert (found.status, found.error) == ("dead", "the bank said no")
    assert (await backend.outcome(new_id())).status == "gone"
