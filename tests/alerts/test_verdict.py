"""The verdict as a function: what explains the rest comes first, and nothing is divided by zero."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.alerts.verdict import (
    NEVER_MS,
    Cause,
    Errors,
    Flow,
    Situation,
    evidence_lines,
    explain,
    looks_refused,
)

COUNTS = ("enqueued", "dequeued", "acked", "nacked", "dead", "expired", "lapsed", "refused")
STEADY = Flow(span_ms=60_000, counts={"enqueued": 600, "dequeued": 600, "acked": 600}, running_mean=5)


def flow(**counts: int) -> Flow:
    return Flow(span_ms=10_000, counts=counts)


@pytest.mark.parametrize(
    ("situation", "cause"),
    [
        (Situation(depth=0), Cause.HEALTHY),
        (Situation(depth=9, recent=flow(enqueued=9, dequeued=9, acked=9)), Cause.HEALTHY),
        (Situation(depth=9, delayed=9), Cause.HEALTHY),
        (Situation(depth=9, paused=True, telemetry_lag_ms=10**9), Cause.PAUSED),
        (Situation(depth=9, telemetry_lag_ms=61_000), Cause.TELEMETRY_STALE),
        (Situation(depth=9), Cause.NO_WORKERS),
        (Situation(depth=9, running=2, limit=2, recent=flow(dequeued=2)), Cause.LIMIT_REACHED),
        (
            Situation(depth=9, environment_running=7, environment_limit=7, recent=flow(enqueued=9)),
            Cause.LIMIT_REACHED,
        ),
        (
            Situation(depth=900, recent=flow(enqueued=1_000, dequeued=100, acked=100), before=STEADY),
            Cause.ARRIVAL_SPIKE,
        ),
        (
            Situation(
                depth=90,
                running=5,
                limit=5,
                before=STEADY,
                recent=Flow(
                    span_ms=10_000, counts={"enqueued": 100, "acked": 5, "dequeued": 5}, running_mean=5
                ),
            ),
            Cause.SLOW_HANDLERS,
        ),
        (
            Situation(
                depth=9,
                recent=flow(acked=10, dead=5, dequeued=15),
                errors=(Errors(sample="ValueError: bad row", deaths=5),),
            ),
            Cause.POISON_MESSAGES,
        ),
        (
            Situation(
                depth=9,
                recent=flow(dead=5, nacked=50, dequeued=55),
                errors=(Errors(sample="the endpoint answered 503", deaths=5),),
            ),
            Cause.DOWNSTREAM_REFUSING,
        ),
        (
            Situation(depth=9, recent=flow(nacked=50, dequeued=50), delivers_to="https://example.com"),
            Cause.DOWNSTREAM_REFUSING,
        ),
        (Situation(depth=9, running=1, recent=flow(enqueued=3)), Cause.UNKNOWN),
    ],
)
def test_each_situation_has_its_cause(situation: Situation, cause: Cause) -> None:
    verdict = explain(situation)
    assert verdict.cause is cause, verdict.summary
    assert verdict.summary
    assert evidence_lines(verdict.evidence)


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ("ConnectError: connection refused", True),
        ("the endpoint answered 503", True),
        ("HTTP 429 Too Many Requests", True),
        ("TimeoutError", True),
        ("the endpoint answered 400", False),
        ("ValueError: bad row 503", False),
        ("KeyError: 'id'", False),
    ],
)
def test_errors_of_the_other_side_are_told_from_errors_of_the_message(error: str, refused: bool) -> None:
    assert looks_refused(error) is refused


errors = st.builds(Errors, sample=st.text(), deaths=st.integers(1, 99))
flows = st.builds(
    Flow,
    span_ms=st.integers(0, 900_000),
    counts=st.dictionaries(st.sampled_from(COUNTS), st.integers(0, 10**9)),
    running_mean=st.floats(0, 1e6),
    running_max=st.integers(0, 10**6),
)


@given(
    st.builds(
        Situation,
        depth=st.integers(0, 10**9),
        delayed=st.integers(0, 10**9),
        running=st.integers(0, 10**6),
        limit=st.none() | st.integers(0, 100),
        environment_limit=st.none() | st.integers(0, 100),
        environment_running=st.integers(0, 100),
        paused=st.booleans(),
        recent=flows,
        before=st.none() | flows,
        errors=st.lists(st.builds(Errors, sample=st.text(), deaths=st.integers(1, 99)), max_size=3).map(
            tuple
        ),
        telemetry_lag_ms=st.integers(0, 10**9),
    )
)
def test_every_situation_has_a_verdict(situation: Situation) -> None:
    verdict = explain(situation)
    assert verdict.cause not in [one.cause for one in verdict.also if one.cause is not Cause.LIMIT_REACHED]
    assert all(isinstance(line, str) for line in evidence_lines(verdict.evidence))


def test_figures_for_people_have_no_exponents() -> None:
    lines = evidence_lines({"handler_ms": 2_533.4, "error_rate": 0.12134, "limit": 4})
    assert lines == ["handler ms: 2,533", "error rate: 0.121", "limit: 4"]


def test_telemetry_that_never_came_has_no_age() -> None:
    verdict = explain(Situation(depth=0, telemetry_lag_ms=NEVER_MS + 1))
    assert verdict.cause is Cause.TELEMETRY_STALE
    assert "no telemetry has arrived yet" in verdict.summary
    assert not verdict.evidence
