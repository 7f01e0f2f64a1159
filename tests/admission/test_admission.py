"""Pressure and policy in, EXECUTE, QUEUE or REJECT out."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.admission.admission import Admission
from weir.admission.capacity import AdaptiveLimit, QueueBudget
from weir.admission.decide import DEFAULT_THRESHOLDS, AdmissionPolicy, Decision, Pressure, decide
from weir.admission.kinds import PRIORITIES, OperationType
from weir.model.holders import Holder

POLICY = AdmissionPolicy()
ONE: Holder = ("one", "project", "environment")


def at(utilization: float, *, depth: int = 0) -> Pressure:
    return Pressure(busy_connections=round(utilization * 1000), connections=1000, depth=depth)


@pytest.mark.parametrize(
    ("kind", "utilization", "depth", "decision"),
    [
        (OperationType.PUSH, 0.70, 0, Decision.EXECUTE),
        (OperationType.PUSH, 0.71, 10_000, Decision.QUEUE),
        (OperationType.PUSH, 0.71, 10_001, Decision.REJECT),
        (OperationType.PUSH, 0.70, 99_999, Decision.EXECUTE),
        (OperationType.ACK_BATCH, 0.80, 0, Decision.EXECUTE),
        (OperationType.ACK_BATCH, 0.81, 50_000, Decision.QUEUE),
        (OperationType.ACK_SINGLE, 0.81, 50_001, Decision.REJECT),
        (OperationType.POP, 0.95, 9_999, Decision.EXECUTE),
        (OperationType.POP, 0.96, 0, Decision.REJECT),
    ],
)
def test_the_thresholds_of_the_source_are_the_defaults(
    kind: OperationType, utilization: float, depth: int, decision: Decision
) -> None:
    assert decide(kind, at(utilization, depth=depth), POLICY) is decision


def test_connections_count_when_they_are_busy_not_when_they_are_open() -> None:
    idle = Pressure(busy_connections=0, connections=30)
    assert decide(OperationType.PUSH, idle, POLICY) is Decision.EXECUTE


def test_shedding_ends_well_below_where_it_began() -> None:
    assert decide(OperationType.PUSH, at(0.65), POLICY, last=Decision.EXECUTE) is Decision.EXECUTE
    assert decide(OperationType.PUSH, at(0.65), POLICY, last=Decision.QUEUE) is Decision.QUEUE
    assert decide(OperationType.PUSH, at(0.59), POLICY, last=Decision.QUEUE) is Decision.EXECUTE
    full = at(0.9, depth=9_000)
    assert decide(OperationType.PUSH, full, POLICY, last=Decision.QUEUE) is Decision.QUEUE
    assert decide(OperationType.PUSH, full, POLICY, last=Decision.REJECT) is Decision.REJECT


def test_a_process_that_lags_rejects_because_queueing_would_cost_it_more() -> None:
    some = Pressure(in_flight=17, limit=64)
    assert decide(OperationType.PUSH, replace(some, lag_ms=76), POLICY) is Decision.REJECT
    assert decide(OperationType.PUSH, replace(some, lag_ms=70), POLICY) is Decision.EXECUTE
    late = decide(OperationType.PUSH, replace(some, lag_ms=70), POLICY, last=Decision.REJECT)
    assert late is Decision.REJECT
    assert decide(OperationType.ACK_BATCH, replace(some, lag_ms=500), POLICY) is Decision.EXECUTE
    assert decide(OperationType.POP, replace(some, lag_ms=200), POLICY) is Decision.EXECUTE


def test_a_few_operations_are_executed_however_slow_the_machine_is() -> None:
    assert decide(OperationType.PUSH, Pressure(in_flight=4, limit=64, lag_ms=999), POLICY) is Decision.EXECUTE


def test_only_so_many_operations_are_on_their_way_into_the_queue_at_once() -> None:
    busy = Pressure(busy_connections=9, connections=10, queueing=127)
    assert decide(OperationType.PUSH, busy, POLICY) is Decision.QUEUE
    assert decide(OperationType.PUSH, replace(busy, queueing=128), POLICY) is Decision.REJECT


@given(
    kind=st.sampled_from(OperationType),
    last=st.sampled_from(Decision),
    low=st.floats(0, 3),
    more=st.floats(0, 3),
    depth=st.integers(0, 100_000),
)
def test_more_pressure_never_admits_more(
    kind: OperationType, last: Decision, low: float, more: float, depth: int
) -> None:
    severity = list(Decision)
    calm = decide(kind, replace(at(low, depth=depth), lag_ms=low * 100), POLICY, last=last)
    pressed = decide(kind, replace(at(low + more, depth=depth), lag_ms=(low + more) * 100), POLICY, last=last)
    assert severity.index(pressed) >= severity.index(calm)


def test_exactly_the_limit_is_executed_at_once() -> None:
    admission = Admission(limit=AdaptiveLimit(initial=30))
    decisions = []
    for _ in range(31):
        decisions.append(admission.decide(OperationType.PUSH, ONE))
        admission.in_flight += 1
    assert decisions == [Decision.EXECUTE] * 30 + [Decision.QUEUE]


def test_at_the_door_those_on_their_way_in_are_seen() -> None:
    admission = Admission(limit=AdaptiveLimit(initial=30))
    let_in = sum(admission.let_in(OperationType.PUSH, ONE) for _ in range(1_000))
    assert let_in == admission.arriving == 30 + admission.queueing_limit.limit
    admission.arriving = 0
    admission.budget.spend(1_000, ONE)
    assert sum(admission.let_in(OperationType.PUSH, ONE) for _ in range(1_000)) == 30


def test_without_admission_everything_is_executed() -> None:
    admission = Admission(enabled=False)
    admission.in_flight, admission.lag_ms = 100_000, 1e6
    assert admission.decide(OperationType.PUSH, ONE) is Decision.EXECUTE


@pytest.mark.parametrize("capacity", [16, 50, 200])
def test_the_limit_finds_the_capacity_of_the_store(capacity: int) -> None:
    """A store that serves `capacity` at once in 20 ms and makes the rest wait their turn."""
    chance = random.Random(capacity)
    limit = AdaptiveLimit(initial=64, minimum=4, target_ms=40)
    for _ in range(20_000):
        running = limit.limit
        waves = max(1.0, running / capacity)
        limit.observe(latency_ms=20 * waves * chance.uniform(0.9, 1.1), in_flight=running)
    assert capacity <= limit.limit <= 2.6 * capacity


def test_the_limit_does_not_grow_while_nobody_uses_it() -> None:
    limit = AdaptiveLimit(initial=64)
    for _ in range(10_000):
        limit.observe(latency_ms=1, in_flight=3)
    assert limit.limit == 64


@given(
    kind=st.sampled_from(OperationType),
    last=st.sampled_from(Decision),
    in_flight=st.integers(0, 80),
    lag_ms=st.floats(0, 200),
    busy=st.integers(0, 30),
    utilization=st.floats(0.05, 1),
)
def test_calm_is_only_what_would_be_executed_anyway(
    kind: OperationType, last: Decision, in_flight: int, lag_ms: float, busy: int, utilization: float
) -> None:
    threshold = replace(DEFAULT_THRESHOLDS[OperationType.PUSH], utilization=utilization)
    policy = AdmissionPolicy(thresholds={**DEFAULT_THRESHOLDS, OperationType.PUSH: threshold})
    admission = Admission(policy=policy)
    admission.in_flight, admission.lag_ms = in_flight, lag_ms
    admission.busy_connections, admission.connections = busy, 30
    if admission._calm_with(in_flight + 1):
        pressure = replace(admission.pressure, in_flight=in_flight + 1)
        assert decide(kind, pressure, policy, last=last) is Decision.EXECUTE


def test_a_burst_is_queued_and_a_load_that_lasts_is_rejected() -> None:
    admission = Admission(budget=QueueBudget(burst=100, share=0.1, refill_s=10))
    admission.in_flight = 10_000
    queued = 0
    while admission.decide(OperationType.PUSH, ONE) is Decision.QUEUE:
        assert admission.may_queue(OperationType.PUSH, 1, ONE, for_load=True)
        queued += 1
    assert queued == 100
    assert admission.decide(OperationType.PUSH, ONE) is Decision.REJECT


def test_under_pressure_the_budget_earns_a_share_of_what_is_executed() -> None:
    budget = QueueBudget(burst=100, share=0.125, refill_s=10)
    budget.spend(100, ONE)
    for _ in range(39):
        budget.earn_share()
    assert not budget.open
    budget.earn_share()
    assert budget.open


def test_without_pressure_the_budget_is_full_again_after_its_time() -> None:
    admission = Admission(budget=QueueBudget(burst=100, refill_s=10))
    admission.budget.spend(100, ONE)
    admission.in_flight = 60
    admission.count_rest(100.0)
    assert not admission.budget.open
    admission.in_flight = 0
    admission.count_rest(0.5)
    assert admission.budget.open


def test_every_kind_that_can_be_queued_has_a_priority_and_settling_comes_first() -> None:
    assert set(PRIORITIES) == {kind for kind, threshold in DEFAULT_THRESHOLDS.items() if threshold.queueable}
    assert max(PRIORITIES, key=lambda kind: PRIORITIES[kind]) is OperationType.PUSH
    assert DEFAULT_THRESHOLDS[OperationType.PUSH].depth == 10_000
