"""Simulated hours and days: the expected alerts and resolves, and no others."""

from __future__ import annotations

import pytest

from alerts.simulation import HOUR, MINUTE, SECOND, Simulation, Story
from weir.alerts.alert_records import AlertRecords
from weir.alerts.evaluation_writer import load_memories
from weir.alerts.exposition import alert_families
from weir.alerts.judge import Figure, Trustworthiness, judge
from weir.alerts.lease import Deposed, EvaluatorLease
from weir.alerts.machine import AlertStatus, Level
from weir.alerts.rule import AlertRule, draft_of
from weir.alerts.rules import AlertRules
from weir.alerts.silences import Silences
from weir.control.database import Database
from weir.model.names import EnvironmentRef


async def add_rule(database: Database, environment: EnvironmentRef, **values: object) -> AlertRule:
    defaults = {"name": "deep", "metric": "backlog", "operator": ">", "threshold": 100, "queue": "q"}
    draft = draft_of(**{**defaults, "channels": ("ops",), **values})  # type: ignore[arg-type]
    return await AlertRules(database).create(environment, draft)


def between(start: int, end: int, high: float = 500, low: float = 10):
    return lambda at: high if start <= at < end else low


async def test_a_spike_shorter_than_the_window_says_nothing(
    database: Database, environment: EnvironmentRef
) -> None:
    simulation = Simulation(database, environment, Story(depth={"q": between(5 * MINUTE, 9 * MINUTE)}))
    await add_rule(database, environment)
    await simulation.run(30 * MINUTE)
    assert await simulation.episodes() == []
    assert await simulation.said() == []


async def test_a_long_spike_fires_once_at_the_end_of_the_window_and_resolves_once_a_clean_window_later(
    database: Database, environment: EnvironmentRef
) -> None:
    simulation = Simulation(database, environment, Story(depth={"q": between(10 * MINUTE, 30 * MINUTE)}))
    await add_rule(database, environment)
    await simulation.run(60 * MINUTE)
    ((_, fired, resolved),) = await simulation.episodes()
    assert 15 * 60 - 30 <= fired <= 15 * 60 + 30
    assert 35 * 60 <= resolved <= 35 * 60 + 30
    assert await simulation.said() == [("firing", 1), ("resolved", 1)]


async def test_slow_growth_fires_when_the_threshold_was_crossed_for_a_window(
    database: Database, environment: EnvironmentRef
) -> None:
    simulation = Simulation(database, environment, Story(depth={"q": lambda at: at / MINUTE}))
    await add_rule(database, environment)
    await simulation.run(120 * MINUTE)
    assert [fired // 60 for _, fired, _ in await simulation.episodes()] == [105]


async def test_flapping_is_one_alert_and_not_a_storm(database: Database, environment: EnvironmentRef) -> None:
    flapping = lambda at: 500 if at < 8 * MINUTE or (at // MINUTE) % 4 else 10  # noqa: E731
    simulation = Simulation(database, environment, Story(depth={"q": flapping}))
    await add_rule(database, environment)
    await simulation.run(2 * HOUR)
    episodes = await simulation.episodes()
    assert len(episodes) == 1
    assert episodes[0][2] is None
    assert await simulation.said() == [("firing", 1)]


async def test_hysteresis_keeps_an_alert_whose_value_hovers(
    database: Database, environment: EnvironmentRef
) -> None:
    hovering = lambda at: 500 if at < 10 * MINUTE else 90 if at < 40 * MINUTE else 10  # noqa: E731
    simulation = Simulation(database, environment, Story(depth={"q": hovering}))
    await add_rule(database, environment, clear_threshold=50)
    await simulation.run(60 * MINUTE)
    ((_, _, resolved),) = await simulation.episodes()
    assert 45 * 60 <= resolved <= 45 * 60 + 30


async def test_an_outage_of_the_pipeline_resolves_nothing_and_raises_nothing(
    database: Database, environment: EnvironmentRef
) -> None:
    story = Story(depth={"q": between(0, 20 * MINUTE)}, outages=[(15 * MINUTE, 60 * MINUTE)])
    simulation = Simulation(database, environment, story)
    rule = await add_rule(database, environment)
    await simulation.run(58 * MINUTE)
    ((_, _, resolved),) = await simulation.episodes()
    assert resolved is None
    memory = (await load_memories(database))[rule.id, "q"].memory
    assert (memory.status, memory.open) == (AlertStatus.UNKNOWN, True)
    (alert,) = await AlertRecords(database).of(environment)
    assert alert.unknown_since_ms is not None
    await simulation.run(70 * MINUTE)
    ((_, _, resolved),) = await simulation.episodes()
    assert 60 * 60 <= resolved <= 60 * 60 + 30
    assert await simulation.said() == [("firing", 1), ("resolved", 1)]
    events = [entry.event for entry in await AlertRecords(database).timeline(alert)]
    assert events == ["fired", "unknown", "known", "resolved"]


async def test_a_warehouse_that_is_away_resolves_nothing_and_can_be_alerted_on(
    database: Database, environment: EnvironmentRef
) -> None:
    story = Story(depth={"q": between(0, 20 * MINUTE)}, away=[(15 * MINUTE, 40 * MINUTE)])
    simulation = Simulation(database, environment, story)
    rule = await add_rule(database, environment)
    await add_rule(database, environment, name="late", metric="pipeline_lag", threshold=120_000, queue=None)
    await simulation.run(39 * MINUTE)
    assert (await load_memories(database))[rule.id, "q"].memory.status is AlertStatus.UNKNOWN
    (_, _, resolved), (_, late, _) = await simulation.episodes()
    assert resolved is None
    assert 17 * 60 <= late <= 17 * 60 + 30
    await simulation.run(60 * MINUTE)
    assert all(resolved is not None for _, _, resolved in await simulation.episodes())


async def test_lost_events_are_not_calm(database: Database, environment: EnvironmentRef) -> None:
    story = Story(depth={"q": between(0, 10 * MINUTE)}, losses=[(12 * MINUTE, 13 * MINUTE)])
    simulation = Simulation(database, environment, story)
    await add_rule(database, environment)
    await simulation.run(17 * MINUTE)
    assert (await simulation.episodes())[0][2] is None
    await simulation.run(30 * MINUTE)
    assert 18 * 60 <= (await simulation.episodes())[0][2] <= 18 * 60 + 30


def test_lost_events_do_not_look_like_too_little() -> None:
    draft = draft_of(name="slow", metric="throughput", operator="<", threshold=1, window_ms=MINUTE)
    lossy = Trustworthiness(stale=False, lossy=True)
    for value in (0.5, 5.0):
        seen = judge(draft, Figure(value=value, at_rest=False), trust=lossy, now_ms=0)
        assert seen.level is Level.UNKNOWN


async def test_a_figure_over_the_window_fires_at_once_and_resolves_after_a_calm_window(
    database: Database, environment: EnvironmentRef
) -> None:
    story = Story(depth={}, error_rate={"q": between(10 * MINUTE, 20 * MINUTE, high=0.5, low=0.0)})
    simulation = Simulation(database, environment, story)
    await add_rule(database, environment, metric="error_rate", threshold=0.2)
    await simulation.run(60 * MINUTE)
    ((_, fired, resolved),) = await simulation.episodes()
    assert 12 * 60 <= fired <= 12 * 60 + 30
    assert 23 * 60 + 5 * 60 <= resolved <= 23 * 60 + 5 * 60 + 60


async def test_an_alert_resolves_also_if_rules_are_evaluated_rarely(
    database: Database, environment: EnvironmentRef
) -> None:
    story = Story(depth={}, error_rate={"q": between(10 * MINUTE, 20 * MINUTE, high=0.5, low=0.0)})
    simulation = Simulation(database, environment, story)
    simulation.evaluator = simulation.start("first", every=2 * MINUTE)
    await add_rule(database, environment, metric="error_rate", threshold=0.2)
    await simulation.run(60 * MINUTE, every=2 * MINUTE)
    ((_, _, resolved),) = await simulation.episodes()
    assert resolved is not None


async def test_every_queue_of_an_environment_has_its_own_alert_and_one_notification_tells_of_all(
    database: Database, environment: EnvironmentRef
) -> None:
    depth = {f"q{number}": between(0, HOUR, high=200 + number) for number in range(60)}
    simulation = Simulation(database, environment, Story(depth={**depth, "calm": lambda _: 1}))
    await add_rule(database, environment, queue=None)
    await simulation.run(10 * MINUTE)
    assert len(await simulation.episodes()) == 60
    assert await simulation.said() == [("firing", 60)]


async def test_an_evaluator_that_dies_while_firing_loses_no_resolve(
    database: Database, environment: EnvironmentRef
) -> None:
    simulation = Simulation(database, environment, Story(depth={"q": between(0, 20 * MINUTE)}))
    await add_rule(database, environment)
    simulation.asleep = [(15 * MINUTE, 40 * MINUTE)]
    await simulation.run(39 * MINUTE)
    simulation.evaluator = simulation.start("second")
    await simulation.run(60 * MINUTE)
    ((_, _, resolved),) = await simulation.episodes()
    assert 40 * 60 <= resolved <= 40 * 60 + 30
    assert await simulation.said() == [("firing", 1), ("resolved", 1)]


async def test_only_one_evaluates_and_the_next_takes_over_when_the_lease_is_over(
    database: Database, environment: EnvironmentRef
) -> None:
    simulation = Simulation(database, environment, Story(depth={"q": between(0, HOUR)}))
    await add_rule(database, environment)
    second = simulation.start("second")
    assert await simulation.evaluator.evaluate_once() is not None
    assert await second.evaluate_once() is None
    simulation.clock.advance(91 * SECOND)
    assert await second.evaluate_once() is not None
    assert await simulation.evaluator.evaluate_once() is None


async def test_the_lease_of_a_dead_evaluator_ends_although_the_clock_stepped_back(database: Database) -> None:
    now_ms = 10 * HOUR
    dead, other = EvaluatorLease(database, holder="dead"), EvaluatorLease(database, holder="other")
    assert await dead.take(now_ms=now_ms) is not None
    assert await other.take(now_ms=now_ms - 5) is None, "clocks of two hosts differ a little"
    assert await other.take(now_ms=now_ms - HOUR) is not None


async def test_a_deposed_evaluator_writes_nothing(database: Database, environment: EnvironmentRef) -> None:
    simulation = Simulation(database, environment, Story(depth={"q": between(0, HOUR)}))
    await add_rule(database, environment)
    simulation.clock.advance(6 * MINUTE)
    old = await EvaluatorLease(database, holder="first").take(now_ms=simulation.clock.now_ms())
    assert old is not None
    simulation.clock.advance(5 * MINUTE)
    assert (await simulation.start("second").evaluate_once()).fired == 1
    with pytest.raises(Deposed):
        await simulation.evaluator.evaluate_under(old)
    assert await simulation.said() == [("firing", 1)]


async def test_a_cooldown_spaces_alerts_out(database: Database, environment: EnvironmentRef) -> None:
    busy = lambda at: 500 if (at // (11 * MINUTE)) % 2 == 0 else 10  # noqa: E731
    simulation = Simulation(database, environment, Story(depth={"q": busy}))
    await add_rule(database, environment, cooldown_ms=60 * MINUTE)
    await simulation.run(2 * HOUR)
    fired = [fired for _, fired, _ in await simulation.episodes()]
    assert len(fired) == 2
    assert fired[1] - fired[0] >= 3_600


async def test_a_silence_holds_notifications_back_until_it_ends(
    database: Database, environment: EnvironmentRef
) -> None:
    simulation = Simulation(database, environment, Story(depth={"q": between(0, HOUR)}))
    await add_rule(database, environment)
    silences = Silences(database, clock=simulation.clock)
    await silences.add(environment, for_ms=20 * MINUTE, queue="q", actor="test")
    await simulation.run(15 * MINUTE)
    assert len(await simulation.episodes()) == 1
    assert await simulation.said() == []
    await simulation.run(25 * MINUTE)
    assert await simulation.said() == [("firing", 1)]


async def test_resolving_by_hand_holds_until_the_cooldown_is_over(
    database: Database, environment: EnvironmentRef
) -> None:
    simulation = Simulation(database, environment, Story(depth={"q": between(0, 3 * HOUR)}))
    await add_rule(database, environment)
    await simulation.run(10 * MINUTE)
    (alert,) = await AlertRecords(database).of(environment)
    await AlertRecords(database, clock=simulation.clock).resolve(environment, alert.id, actor="somebody")
    await simulation.run(19 * MINUTE)
    assert len(await simulation.episodes()) == 1
    await simulation.run(30 * MINUTE)
    assert len(await simulation.episodes()) == 2
    assert await simulation.said() == [("firing", 1), ("resolved", 1), ("firing", 1)]


async def test_a_rule_that_is_removed_closes_its_alert_and_says_so(
    database: Database, environment: EnvironmentRef
) -> None:
    simulation = Simulation(database, environment, Story(depth={"q": between(0, HOUR)}))
    rule = await add_rule(database, environment)
    await simulation.run(10 * MINUTE)
    await AlertRules(database, clock=simulation.clock).delete(environment, rule.id)
    ((_, _, resolved),) = await simulation.episodes()
    assert resolved == 600
    assert await simulation.said() == [("firing", 1), ("resolved", 1)]
    await simulation.run(12 * MINUTE)


async def test_prometheus_sees_what_fires_and_when_it_was_last_looked_at(
    database: Database, environment: EnvironmentRef
) -> None:
    simulation = Simulation(database, environment, Story(depth={"q": between(0, HOUR)}))
    source = alert_families(database, clock=simulation.clock)
    before = {family.name: family.samples[0].value async for family in source()}
    assert before == {"weir_alerts_firing": 0, "weir_alert_notifications_waiting": 0}
    await add_rule(database, environment)
    await simulation.run(10 * MINUTE)
    simulation.clock.advance(7 * SECOND)
    after = {family.name: family.samples[0].value async for family in source()}
    assert (after["weir_alerts_firing"], after["weir_alert_notifications_waiting"]) == (1, 1)
    assert after["weir_alert_evaluation_age_seconds"] == 7


@pytest.mark.slow
async def test_two_days_with_everything_in_them(database: Database, environment: EnvironmentRef) -> None:
    """Every hour at :10 the queue is deep for 20 minutes; outages, losses and dead evaluators in between."""
    story = Story(
        depth={"q": lambda at: 500 if 10 * MINUTE <= at % HOUR < 30 * MINUTE else 10},
        outages=[(5 * HOUR + 20 * MINUTE, 5 * HOUR + 50 * MINUTE)],
        losses=[(30 * HOUR + 40 * MINUTE, 30 * HOUR + 41 * MINUTE)],
    )
    simulation = Simulation(database, environment, story)
    simulation.asleep = [(20 * HOUR + 16 * MINUTE, 20 * HOUR + 45 * MINUTE)]
    await add_rule(database, environment)
    await simulation.run(48 * HOUR)
    episodes = await simulation.episodes()
    assert [fired // 3_600 for _, fired, _ in episodes] == list(range(48))
    for hour, (_, fired, resolved) in enumerate(episodes):
        assert 14 * 60 + 30 <= fired - hour * 3_600 <= 15 * 60 + 30
        expected = {5: 50, 20: 45}.get(hour, 35)
        assert expected * 60 <= resolved - hour * 3_600 <= expected * 60 + 60
    assert await simulation.said() == [("firing", 1), ("resolved", 1)] * 48
