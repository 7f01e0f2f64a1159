"""Rules about drift: a tenant is told when the charts of its queues are wrong, and in plain words."""

from __future__ import annotations

from tests.alerts.simulation import HOUR, MINUTE, Simulation, Story
from tests.alerts.test_days import add_rule

from weir.alerts.alert_records import AlertRecords
from weir.alerts.evaluation_writer import load_memories
from weir.alerts.machine import AlertStatus
from weir.control.database import Database
from weir.model.names import EnvironmentRef


async def test_drift_of_a_queue_is_told_when_an_audit_finds_it_and_resolved_when_it_is_gone(
    database: Database, environment: EnvironmentRef
) -> None:
    drift = {"q": lambda at: 3 if 20 * MINUTE <= at < 60 * MINUTE else 0, "calm": lambda _: 0}
    simulation = Simulation(database, environment, Story(depth={}, drift=drift))
    await add_rule(database, environment, metric="metrics_drift", threshold=0, queue=None)
    await simulation.run(2 * HOUR)
    ((queue, fired, resolved),) = await simulation.episodes()
    assert (queue, fired) == ("q", 20 * 60)
    assert 60 * 60 <= resolved <= 70 * 60
    (alert,) = await AlertRecords(database).of(environment)
    assert alert.verdict["summary"].startswith("the charts of this queue are wrong by 3 counts")


async def test_drift_is_not_known_without_an_audit_in_the_last_hour(
    database: Database, environment: EnvironmentRef
) -> None:
    drift = {"q": lambda _: 3}
    simulation = Simulation(database, environment, Story(depth={}, drift=drift, audits_until=20 * MINUTE))
    rule = await add_rule(database, environment, metric="metrics_drift", threshold=0, queue="q")
    await simulation.run(5 * MINUTE)
    assert await simulation.episodes() == []
    await simulation.run(79 * MINUTE)
    assert (await load_memories(database))[rule.id, "q"].memory.status is AlertStatus.FIRING
    await simulation.run(90 * MINUTE)
    memory = (await load_memories(database))[rule.id, "q"].memory
    assert (memory.status, memory.open) == (AlertStatus.UNKNOWN, True)
