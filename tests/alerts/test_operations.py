"""Rules about the operation queue: stuck operations are told, by the environment whose they are."""

from __future__ import annotations

import pytest
from tests.alerts.simulation import MINUTE, Simulation, Story
from tests.alerts.test_days import add_rule

from weir.alerts.alert_records import AlertRecords
from weir.control.database import Database, execute
from weir.control.sql import NamedQuery
from weir.errors import InvalidInput
from weir.model.ids import new_id
from weir.model.names import EnvironmentRef

QUEUE_ONE = NamedQuery(
    name="queue_one",
    sentence="An operation that was queued so long ago.",
    text="""INSERT INTO weir.operations (id, organization, project, environment, queue, shard, lane, type,
        priority, payload, messages, size_bytes, gated, status, created_ms, finished_ms)
    VALUES (%(id)s, %(organization)s, %(project)s, %(environment)s, 'q', 0, 1, 'PUSH', 5, '', 1, 0, true,
        %(status)s, weir.clock_ms() - %(age_ms)s,
        CASE WHEN %(status)s = 'failed' THEN weir.clock_ms() - 1000 END)""",
)
FINISH_ALL = NamedQuery(
    name="finish_all",
    sentence="Everything was executed.",
    text="UPDATE weir.operations SET status = 'completed', finished_ms = weir.clock_ms()",
)


async def queue_one(database: Database, environment: EnvironmentRef, *, status: str = "pending") -> None:
    async with database.connection() as connection:
        await execute(
            connection,
            QUEUE_ONE,
            id=new_id(),
            organization=environment.organization,
            project=environment.project,
            environment=environment.environment,
            status=status,
            age_ms=200_000,
        )


@pytest.mark.parametrize(
    ("metric", "threshold", "status", "text"),
    [
        (
            "operation_age",
            120_000,
            "pending",
            "age of the oldest operation is 3 min 20 s;"
            " the rule says age of the oldest operation over 2 min for 5 minutes",
        ),
        (
            "operation_backlog",
            1,
            "processing",
            "operation backlog is 2 operations;"
            " the rule says operation backlog over 1 operation for 5 minutes",
        ),
        (
            "failed_operations",
            1,
            "failed",
            "failed operations: 2 operations; the rule says failed operations over 1 operation in 5 minutes",
        ),
    ],
)
async def test_a_rule_about_operations_fires_without_telemetry_and_resolves_when_they_are_done(
    database: Database, environment: EnvironmentRef, metric: str, threshold: float, status: str, text: str
) -> None:
    # The warehouse is away all the time.
    simulation = Simulation(database, environment, Story(depth={}, away=[(0, 60 * MINUTE)]))
    await add_rule(database, environment, metric=metric, threshold=threshold, queue=None)
    elsewhere = EnvironmentRef(organization="another", project="p", environment="e")
    for _ in range(2):
        await queue_one(database, elsewhere, status=status)
    await simulation.run(2 * MINUTE)
    assert await simulation.episodes() == []
    for _ in range(2):
        await queue_one(database, environment, status=status)
    await simulation.run(3 * MINUTE)
    (alert,) = await AlertRecords(database).of(environment)
    assert (alert.state, alert.queue, alert.verdict["summary"]) == ("firing", "", text)
    await database.execute(FINISH_ALL)
    await simulation.run(20 * MINUTE)
    ((_, _, resolved),) = await simulation.episodes()
    assert resolved is not None


async def test_a_rule_about_operations_names_no_queue(
    database: Database, environment: EnvironmentRef
) -> None:
    with pytest.raises(InvalidInput, match="leave `queue` out"):
        await add_rule(database, environment, metric="operation_age", queue="q")
