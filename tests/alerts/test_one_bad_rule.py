"""Rules are evaluated from what is there: no store that is away and no odd rule takes the others along."""

from __future__ import annotations

from typing import Any

import pytest
from tests.alerts.test_days import add_rule
from tests.alerts.test_operations import queue_one

from alerts.simulation import MINUTE, SECOND, T0, Simulation, Story
from weir.alerts import evaluation, evaluator
from weir.alerts.alert_records import AlertRecords
from weir.alerts.evaluation_writer import load_memories
from weir.alerts.machine import AlertStatus
from weir.alerts.measure import measure
from weir.alerts.rule import RuleDraft
from weir.alerts.rules import follow_spec
from weir.control.database import Database
from weir.errors import BrokerUnavailable, InvalidInput
from weir.model.names import EnvironmentRef, QueueRef
from weir.spec.ir import AlertSpec, AppSpec
from weir.testing.memory import MemoryBroker
from weir.warehouse.reading.windows import Frame, Sums


class AwayBroker(MemoryBroker):
    """Redis does not answer."""

    asked = 0

    async def state(self, queue: QueueRef) -> Any:
        AwayBroker.asked += 1
        raise BrokerUnavailable("Redis is away")


async def fired(simulation: Simulation) -> set[str]:
    found = await AlertRecords(simulation.database).of(simulation.environment)
    return {alert.rule["name"] for alert in found}


async def test_while_redis_is_away_rules_that_need_only_the_other_stores_are_evaluated(
    database: Database, environment: EnvironmentRef
) -> None:
    simulation = Simulation(database, environment, Story(depth={"busy": lambda _: 500}))
    simulation.evaluator._broker = AwayBroker()
    await add_rule(database, environment, name="busy", queue="busy")
    for silent in ("silent", "still"):
        await add_rule(database, environment, name=silent, queue=silent)
    await add_rule(
        database, environment, name="operations", metric="operation_backlog", threshold=0, queue=None
    )
    await queue_one(database, environment)
    AwayBroker.asked = 0
    await simulation.run(30 * SECOND)
    assert AwayBroker.asked == 1, "one shard is asked once"
    await simulation.run(6 * MINUTE)
    assert await fired(simulation) == {"busy", "operations"}
    statuses = {name: one.memory.status for (_, name), one in (await load_memories(database)).items()}
    assert statuses["silent"] is statuses["still"] is AlertStatus.UNKNOWN


async def test_a_rule_that_cannot_be_judged_is_unknown_and_the_others_fire(
    database: Database, environment: EnvironmentRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = evaluation.judge

    def judge_all_but_one(draft: RuleDraft, *arguments: Any, **options: Any) -> Any:
        if draft.name == "odd":
            raise ArithmeticError("nobody foresaw this")
        return judge(draft, *arguments, **options)

    monkeypatch.setattr(evaluation, "judge", judge_all_but_one)
    story = Story(depth={"a": lambda _: 500, "b": lambda _: 500})
    simulation = Simulation(database, environment, story)
    await add_rule(database, environment, name="odd", queue="a")
    await add_rule(database, environment, name="even", queue="b")
    await simulation.run(6 * MINUTE)
    assert await fired(simulation) == {"even"}
    statuses = {name: one.memory.status for (_, name), one in (await load_memories(database)).items()}
    assert statuses["a"] is AlertStatus.UNKNOWN


async def test_an_alert_that_cannot_be_stored_does_not_keep_the_others_from_it(
    database: Database, environment: EnvironmentRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_situation = evaluator._without_situation

    def with_nul(change: Any) -> Any:
        verdict = without_situation(change)
        odd = change.rule.draft.name == "odd"
        return type(verdict)(cause=verdict.cause, summary="a\x00b" if odd else "", evidence={})

    story = Story(depth={"a": lambda _: 500, "b": lambda _: 500})
    simulation = Simulation(database, environment, story)
    monkeypatch.setattr(evaluator, "_without_situation", with_nul)
    monkeypatch.setattr(simulation.evaluator, "_situations", None)
    await add_rule(database, environment, name="odd", queue="a")
    await add_rule(database, environment, name="even", queue="b")
    await simulation.run(6 * MINUTE)
    assert await fired(simulation) == {"even"}


async def test_a_steady_rate_is_that_rate_at_every_moment_of_a_bucket(
    database: Database, environment: EnvironmentRef
) -> None:
    """Ten messages per second, landed up to now, of which the newest bucket has only a part."""
    simulation = Simulation(database, environment, Story(depth={}))
    windows, queue = simulation.warehouse.windows, environment.queue("q")

    def sums(frame: Frame) -> dict[QueueRef, Sums]:
        landed_ms = min(frame.end_ms, simulation.clock.now_ms())
        counts = dict.fromkeys(("enqueued", "dequeued", "dead", "expired", "cancelled", "nacked"), 0)
        counts["acked"] = 10 * (landed_ms - frame.start_ms) // SECOND
        return {
            queue: Sums(counts=counts, wait_count=0, wait_sum_ms=0, backlog=0, oldest_age_ms=0, running=0)
        }

    windows._sums = sums  # type: ignore[method-assign]
    rule = await add_rule(database, environment, metric="throughput", operator="<", window_ms=10 * SECOND)
    for _ in range(7):
        simulation.clock.advance(SECOND)
        now_ms = simulation.clock.now_ms()
        measured = await measure(simulation.warehouse, simulation.evaluator._lifetimes, [rule], now_ms=now_ms)
        assert measured.measurement_of(rule, queue).value == 10.0, now_ms - T0


async def test_a_spec_with_a_window_that_cannot_be_seen_is_refused(
    database: Database, environment: EnvironmentRef
) -> None:
    def app(name: str, window_ms: int) -> AppSpec:
        alert = AlertSpec(name=name, metric="backlog", operator=">", threshold=1, window_ms=window_ms)
        return AppSpec(name="Shop", alerts=(alert,))

    async with database.transaction() as connection:
        await follow_spec(connection, environment, None, app("seen", 5 * SECOND), interval_ms=5 * SECOND)
        # It is older than the longer interval, and did not change.
        await follow_spec(connection, environment, None, app("seen", 5 * SECOND))
        with pytest.raises(InvalidInput, match=r"window of `new` is 5 s, .* every 30 s"):
            await follow_spec(connection, environment, None, app("new", 5 * SECOND))
