"""The verdict as a function: what explains the rest comes first, and nothing is divided by zero."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.alerts.causes import NEVER_MS, explain, explain_window, looks_refused
from weir.alerts.evidence import evidence_lines
from weir.alerts.situation import Errors, Flow, Handlers, Situation, Workforce, workforce_of
from weir.alerts.verdict import Cause
from weir.model.names import EnvironmentRef
from weir.telemetry.events import QUEUE_COUNTERS
from weir.telemetry.live_workers import LiveWorker, QueueLoad
from weir.warehouse.reading.pace import Pace

SPAN_MS = 15_000
REFUSED = Errors(sample="ConnectionRefusedError: [Errno 111] Connection refused", count=44)
BAD_ROW = Errors(sample="ValueError: column `total` is not a number", count=9)
STEADY = Flow(
    span_ms=1_800_000, counts=dict.fromkeys(("enqueued", "dequeued", "acked"), 9_000), running_mean=2
)
IDLE_WORKERS = Workforce(workers=2, slots=8, free_slots=8)
BUSY_WORKERS = Workforce(workers=2, slots=8, free_slots=0, held=12, handling=8, handling_ms=1_600)


def flow(span_ms: int = SPAN_MS, **counts: int) -> Flow:
    return Flow(span_ms=span_ms, counts=counts)


def served(**changes: Any) -> Situation:
    """A queue that two workers serve, at the usual pace, with a little backlog that shrinks."""
    usual: dict[str, Any] = {
        "depth": 9,
        "running": 4,
        "has_work": True,
        "workforce": replace(BUSY_WORKERS, free_slots=4),
        "now": flow(enqueued=70, dequeued=75, acked=75),
        "recent": flow(300_000, enqueued=1_500, dequeued=1_500, acked=1_500),
        "before": STEADY,
        "handlers": Handlers(ended=75, ended_ms=200, usual_ms=200),
    }
    return Situation(**{**usual, **changes})


STATES: dict[Cause, dict[str, Any]] = {
    Cause.HEALTHY: {},
    Cause.PAUSED: {"paused": True, "now": flow(enqueued=70)},
    Cause.NO_WORKERS: {
        "workforce": Workforce(),
        "now": flow(enqueued=70),
        "handlers": Handlers(usual_ms=200),
    },
    Cause.DOWNSTREAM_REFUSING: {
        "now": flow(enqueued=70, dequeued=75, nacked=75),
        "handlers": Handlers(ended=75, failed=75, ended_ms=200, usual_ms=200),
        "errors": (REFUSED,),
    },
    Cause.HANDLERS_FAILING: {
        "now": flow(enqueued=70, dequeued=75, nacked=75),
        "handlers": Handlers(ended=75, failed=75, ended_ms=200, usual_ms=200),
        "errors": (BAD_ROW,),
    },
    Cause.POISON_MESSAGES: {
        "now": flow(enqueued=70, dequeued=75, acked=65, dead=10),
        "handlers": Handlers(ended=75, failed=10, ended_ms=200, usual_ms=200),
        "errors": (BAD_ROW,),
    },
    Cause.LEASES_LAPSED: {"now": flow(enqueued=70, dequeued=75, acked=60, lapsed=15)},
    Cause.SLOW_HANDLERS: {"handlers": Handlers(ended=15, ended_ms=4_000, usual_ms=200)},
    Cause.ARRIVAL_SPIKE: {"now": flow(enqueued=700, dequeued=75, acked=75)},
    Cause.LIMIT_REACHED: {"running": 4, "limit": 4},
    Cause.TOO_FEW_WORKERS: {"workforce": BUSY_WORKERS, "now": flow(enqueued=80, dequeued=75, acked=75)},
    Cause.TELEMETRY_STALE: {"telemetry_lag_ms": 21_000},
}
"""What makes each cause out of the queue above."""

ORDER = list(STATES)[1:]
"""Of two that hold, the first explains the other."""


@pytest.mark.parametrize("cause", STATES)
def test_each_state_has_its_cause_and_no_other(cause: Cause) -> None:
    verdict = explain(served(**STATES[cause]))
    assert (verdict.cause, verdict.also) == (cause, ()), verdict
    assert verdict.summary
    assert evidence_lines(verdict.evidence)
    json.dumps(verdict.document())


@pytest.mark.parametrize("later", STATES)
@pytest.mark.parametrize("earlier", STATES)
def test_a_state_is_told_from_every_state_that_it_may_come_from(earlier: Cause, later: Cause) -> None:
    """What the state before left behind in the longer spans does not name the cause."""
    before = served(**STATES[earlier])
    over = replace(
        served(**STATES[later]),
        recent=_long(before.now),
        errors=served(**STATES[later]).errors or before.errors,
    )
    assert explain(over).cause is later, explain(over).summary


def _long(now: Flow) -> Flow:
    """The recent past, had it been as `now` all the time."""
    return Flow(span_ms=300_000, counts={name: 20 * count for name, count in now.counts.items()})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (one, two)
        for at, one in enumerate(ORDER)
        for two in ORDER[at + 1 :]
        # While telemetry is stale it is not known what is usual, nor when leases lapsed.
        if two is not Cause.TELEMETRY_STALE or one not in (Cause.ARRIVAL_SPIKE, Cause.LEASES_LAPSED)
    ],
)
def test_of_two_causes_the_one_that_explains_the_other_comes_first(first: Cause, second: Cause) -> None:
    """Both are put together where they can hold at once: the changes of the second, then of the first."""
    changes = {**STATES[second], **STATES[first]}
    assert explain(served(**changes)).cause is first


class TestNobodyWorks:
    def test_workers_that_are_gone_are_told_whatever_they_left_behind(self) -> None:
        """Leases that have not lapsed yet, a limit that they fill, arrivals that go on, old errors."""
        gone = served(
            depth=480,
            running=2,
            limit=2,
            environment_running=2,
            environment_limit=2,
            workforce=Workforce(),
            now=flow(enqueued=150, lapsed=4, nacked=0),
            errors=(REFUSED,),
        )
        verdict = explain(gone)
        assert verdict.cause is Cause.NO_WORKERS
        assert "no worker is alive" in verdict.summary
        assert "2 more are still leased" in verdict.summary
        assert "0 workers alive for this queue" in evidence_lines(verdict.evidence)

    def test_lapsed_leases_of_a_queue_that_nobody_asks_are_not_poison(self) -> None:
        lone = Situation(
            depth=13, now=flow(enqueued=8, lapsed=5), recent=flow(300_000, enqueued=13, dequeued=5, lapsed=5)
        )
        verdict = explain(lone)
        assert verdict.cause is Cause.NO_WORKERS
        assert "nobody asks" in verdict.summary

    def test_a_consumer_that_takes_messages_is_somebody_though_no_worker_is_known(self) -> None:
        for has_work in (False, True):
            taken = Situation(
                depth=9, has_work=has_work, workforce=Workforce(), now=flow(enqueued=9, dequeued=9, acked=9)
            )
            assert explain(taken).cause is Cause.HEALTHY

    def test_a_consumer_that_holds_messages_and_asks_for_no_more_is_not_called_dead(self) -> None:
        assert explain(Situation(depth=9, running=1, now=flow(enqueued=3))).cause is Cause.UNKNOWN

    def test_nothing_is_said_about_consumers_while_telemetry_is_stale(self) -> None:
        assert explain(Situation(depth=9, telemetry_lag_ms=21_000)).cause is Cause.TELEMETRY_STALE

    def test_live_workers_that_leave_a_disabled_endpoint_alone_are_not_missing(self) -> None:
        disabled = served(
            workforce=IDLE_WORKERS,
            now=flow(enqueued=9),
            delivers_to="https://example.com",
            disabled_reason="the endpoint answered 410",
        )
        verdict = explain(disabled)
        assert verdict.cause is Cause.DOWNSTREAM_REFUSING
        assert "disabled (the endpoint answered 410)" in verdict.summary

    def test_messages_that_wait_for_their_time_need_nobody(self) -> None:
        verdict = explain(Situation(depth=9, delayed=9))
        assert verdict.cause is Cause.HEALTHY
        assert "none is ready" in verdict.summary


class TestAttemptsFail:
    def test_attempts_that_are_refused_and_still_retry_are_not_poison(self) -> None:
        retrying = served(
            depth=440,
            delayed=440,
            running=0,
            now=flow(nacked=440, dequeued=440),
            handlers=Handlers(ended=440, failed=440),
            errors=(REFUSED,),
        )
        assert explain(retrying).cause is Cause.DOWNSTREAM_REFUSING

    def test_a_few_newest_attempts_are_judged_with_those_before(self) -> None:
        recent = flow(300_000, acked=97, nacked=3)
        assert explain(served(now=flow(acked=1, nacked=1, dequeued=2), recent=recent)).cause is Cause.HEALTHY
        assert (
            explain(served(now=flow(acked=2, dequeued=2), recent=flow(300_000, nacked=99))).cause
            is Cause.HEALTHY
        )

    def test_what_failed_before_is_why_while_everything_waits_for_its_next_attempt(self) -> None:
        waiting = served(
            depth=20, delayed=20, running=0, now=flow(), recent=flow(300_000, nacked=20), errors=(REFUSED,)
        )
        assert explain(waiting).cause is Cause.DOWNSTREAM_REFUSING
        assert explain(replace(waiting, depth=0, delayed=0)).cause is Cause.HEALTHY

    def test_a_lease_that_lapsed_on_the_last_attempt_is_not_a_failed_attempt(self) -> None:
        dying = served(now=flow(dequeued=75, enqueued=70, acked=60, dead=15, lapsed=15))
        assert explain(dying).cause is Cause.LEASES_LAPSED

    def test_a_push_without_error_texts_speaks_of_its_endpoint(self) -> None:
        silent = served(now=flow(nacked=50, dequeued=50), delivers_to="https://example.com")
        verdict = explain(silent)
        assert verdict.cause is Cause.DOWNSTREAM_REFUSING
        assert "`https://example.com`" in verdict.summary

    def test_the_errors_are_shown_with_how_many_attempts_they_ended(self) -> None:
        verdict = explain(served(**STATES[Cause.DOWNSTREAM_REFUSING]))
        lines = evidence_lines(verdict.evidence)
        assert f"44 attempts failed with: {REFUSED.sample}" in lines
        assert "100 % of the attempts failed" in lines


class TestHandlersAreSlow:
    def test_handlers_that_never_end_are_slow_by_how_long_they_have_run(self) -> None:
        stuck = served(
            workforce=replace(BUSY_WORKERS, handling=8, handling_ms=8 * 12_000),
            handlers=Handlers(usual_ms=200),
        )
        verdict = explain(stuck)
        assert verdict.cause is Cause.SLOW_HANDLERS
        assert verdict.summary == "handlers take 12 s, usually 0.2 s"

    def test_prefetched_messages_do_not_make_handlers_slow(self) -> None:
        ahead = served(
            running=40,
            workforce=Workforce(workers=1, slots=2, free_slots=1, held=40, handling=1, handling_ms=900),
            handlers=Handlers(ended=15, ended_ms=2_000, usual_ms=2_000),
            now=replace(served().now, running_mean=40),
        )
        assert explain(ahead).cause is Cause.HEALTHY

    def test_consumers_of_whom_nothing_is_known_are_slow_by_how_long_they_hold_messages(self) -> None:
        held = Situation(
            depth=90,
            running=5,
            before=STEADY,
            now=Flow(span_ms=SPAN_MS, counts={"enqueued": 75, "acked": 5, "dequeued": 5}, running_mean=5),
        )
        verdict = explain(held)
        assert verdict.cause is Cause.SLOW_HANDLERS
        assert verdict.summary == "consumers hold a message for 15 s, usually 0.4 s"

    def test_handlers_are_not_called_slow_while_nothing_waits(self) -> None:
        assert explain(served(**STATES[Cause.SLOW_HANDLERS], depth=0)).cause is Cause.HEALTHY


class TestLimits:
    @pytest.mark.parametrize("running", [0, 1])
    def test_slots_are_in_use_only_if_they_are(self, running: int) -> None:
        brisk = served(running=running, limit=2, now=replace(served().now, running_max=2))
        verdict = explain(brisk)
        assert verdict.cause is Cause.LIMIT_REACHED
        assert "in use" not in verdict.summary
        assert "up to 2 messages ran at once" in verdict.summary

    def test_a_limit_that_was_reached_before_nobody_asked_is_not_the_cause(self) -> None:
        idle = served(running=0, limit=2, now=Flow(span_ms=SPAN_MS, running_max=2), workforce=IDLE_WORKERS)
        assert Cause.LIMIT_REACHED not in {explain(idle).cause, *(one.cause for one in explain(idle).also)}

    def test_the_limit_of_the_environment_holds_up_a_queue_of_which_none_runs(self) -> None:
        full = Situation(depth=9, environment_running=7, environment_limit=7, now=flow(enqueued=9))
        verdict = explain(full)
        assert verdict.cause is Cause.LIMIT_REACHED
        assert verdict.evidence["limit_of"] == "environment"

    def test_workers_may_be_busy_with_other_queues(self) -> None:
        elsewhere = served(
            workforce=Workforce(workers=1, slots=4, free_slots=0), now=flow(enqueued=9), running=0
        )
        verdict = explain(elsewhere)
        assert verdict.cause is Cause.TOO_FEW_WORKERS
        assert "busy with other queues" in verdict.summary

    def test_a_backlog_that_shrinks_at_full_speed_is_being_worked_off(self) -> None:
        draining = served(depth=900, workforce=BUSY_WORKERS, now=flow(enqueued=0, dequeued=75, acked=75))
        verdict = explain(draining)
        assert verdict.cause is Cause.HEALTHY
        assert "being worked off" in verdict.summary

    def test_consumers_that_fall_behind_are_too_few(self) -> None:
        behind = Situation(
            depth=900,
            running=3,
            now=flow(enqueued=300, dequeued=150, acked=150),
            recent=flow(300_000, enqueued=6_000, dequeued=3_000, acked=3_000),
            pace=Pace(arriving=20, leaving=10),
        )
        verdict = explain(behind)
        assert verdict.cause is Cause.TOO_FEW_WORKERS
        assert verdict.summary == "20 messages/s arrive, and consumers finish 10/s"

    def test_chance_is_not_a_spike(self) -> None:
        quiet = replace(STEADY, counts={"enqueued": 120, "acked": 120})
        assert explain(served(before=quiet, now=flow(enqueued=3, dequeued=2, acked=2))).cause is Cause.HEALTHY


class TestWhatIsNotKnown:
    def test_telemetry_that_never_came_has_no_age(self) -> None:
        verdict = explain(Situation(depth=0, telemetry_lag_ms=NEVER_MS + 1))
        assert verdict.cause is Cause.TELEMETRY_STALE
        assert "no telemetry has arrived yet" in verdict.summary
        assert not verdict.evidence

    def test_telemetry_that_was_switched_off_is_said_to_be(self) -> None:
        verdict = explain(served(telemetry_off_since_ms=1_800_000_000_000))
        assert verdict.cause is Cause.TELEMETRY_STALE
        assert "switched off" in verdict.summary

    def test_stale_telemetry_does_not_hide_what_is_known_without_it(self) -> None:
        for cause in (Cause.NO_WORKERS, Cause.DOWNSTREAM_REFUSING, Cause.LIMIT_REACHED, Cause.SLOW_HANDLERS):
            verdict = explain(served(**STATES[cause], telemetry_lag_ms=90_000))
            assert verdict.cause is cause
            assert verdict.also[-1].cause is Cause.TELEMETRY_STALE

    def test_what_failed_before_telemetry_went_stale_is_not_what_fails_now(self) -> None:
        """Without telemetry, just now reaches back to where it ended; the attempts of workers do not."""
        fixed = served(
            telemetry_lag_ms=60_000, now=flow(75_000, dequeued=300, acked=75, nacked=225, lapsed=9)
        )
        assert explain(fixed).cause is Cause.TELEMETRY_STALE

    def test_workers_that_went_while_telemetry_was_stale_are_gone(self) -> None:
        gone = served(
            telemetry_lag_ms=60_000,
            workforce=Workforce(),
            now=flow(75_000, enqueued=300, dequeued=200, acked=200),
            handlers=Handlers(usual_ms=200),
        )
        assert explain(gone).cause is Cause.NO_WORKERS

    def test_a_backlog_is_not_said_to_stay_while_the_counts_are_not_known(self) -> None:
        new = served(workforce=BUSY_WORKERS, now=flow(), recent=flow(), before=None, pace=None)
        verdict = explain(new)
        assert verdict.cause is Cause.TELEMETRY_STALE
        assert verdict.summary == (
            "no telemetry of the queue has arrived yet, so how fast messages arrive and leave is not known"
        )
        assert "how fast messages arrive and leave is not known" in evidence_lines(verdict.evidence)

    def test_nobody_is_said_to_be_missing_while_the_counts_are_not_known(self) -> None:
        assert explain(Situation(depth=9, pace=None)).cause is Cause.TELEMETRY_STALE

    def test_an_empty_queue_is_well_though_its_counts_are_not_known(self) -> None:
        for delayed in (0, 9):
            assert explain(Situation(depth=delayed, delayed=delayed, pace=None)).cause is Cause.HEALTHY

    def test_what_is_known_without_counts_is_told_without_them(self) -> None:
        verdict = explain(served(**STATES[Cause.NO_WORKERS], pace=None))
        assert verdict.cause is Cause.NO_WORKERS
        assert {verdict.evidence[name] for name in ("enqueued", "dequeued", "acked", "lapsed")} == {None}
        assert verdict.also[-1].cause is Cause.TELEMETRY_STALE
        json.dumps(verdict.document())

    def test_without_redis_nothing_is_called_empty(self) -> None:
        verdict = explain(Situation(depth=0, reachable=False))
        assert verdict.cause is Cause.UNKNOWN
        assert "Redis does not answer" in verdict.summary


def test_an_alert_about_a_window_tells_what_held_in_it_if_nothing_holds_now() -> None:
    over = served(recent=flow(300_000, enqueued=99, dequeued=99, acked=50, dead=49), errors=(BAD_ROW,))
    assert explain(over).cause is Cause.HEALTHY
    assert explain_window(over).cause is Cause.POISON_MESSAGES
    assert explain_window(replace(over, paused=True)).cause is Cause.PAUSED
    assert explain_window(served()).cause is Cause.HEALTHY


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ("ConnectError: connection refused", True),
        ("the endpoint answered 503", True),
        ("HTTP 429 Too Many Requests", True),
        ("TimeoutError", True),
        ("ReadTimeout: timed out", True),
        ("socket.gaierror: [Errno -2] Name or service not known", True),
        ("SSLCertVerificationError: certificate verify failed", True),
        ("RemoteProtocolError: Server disconnected without sending a response.", True),
        ("the endpoint answered 400", False),
        ("ValueError: bad row 503", False),
        ("KeyError: 'id'", False),
        ("TypeError: a classless address", False),
        ("Unresolved reference `total`", False),
    ],
)
def test_errors_of_the_other_side_are_told_from_errors_of_the_message(error: str, refused: bool) -> None:
    assert looks_refused(error) is refused


def test_the_workforce_of_a_queue_is_those_that_take_from_it_and_what_all_hold_of_it() -> None:
    environment = EnvironmentRef(organization="o", project="p", environment="e")
    queue = environment.queue("q")
    load = QueueLoad(queue=queue, held=5, running=2, running_ms=300)
    taker = LiveWorker(slots=4, free_slots=1, loads=(load,))
    elsewhere = LiveWorker(slots=9, free_slots=9, queues=frozenset({"other"}))
    draining = LiveWorker(slots=4, free_slots=0, draining=True, loads=(load,))
    assert workforce_of(queue, [taker, elsewhere, draining]) == Workforce(
        workers=1, slots=4, free_slots=1, held=10, handling=4, handling_ms=600
    )


errors = st.builds(Errors, sample=st.text(), count=st.integers(1, 99))
flows = st.builds(
    Flow,
    span_ms=st.integers(0, 900_000),
    counts=st.dictionaries(st.sampled_from(QUEUE_COUNTERS), st.integers(0, 10**9)),
    running_mean=st.floats(0, 1e6),
    running_max=st.integers(0, 10**6),
)
counts = st.integers(0, 100)


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
        now=flows,
        recent=flows,
        before=st.none() | flows,
        errors=st.lists(errors, max_size=3).map(tuple),
        handlers=st.builds(
            Handlers,
            ended=counts,
            failed=counts,
            ended_ms=st.floats(0, 1e6),
            usual_ms=st.none() | st.floats(0, 1e6),
        ),
        has_work=st.booleans(),
        pace=st.none() | st.just(Pace(arriving=2, leaving=1)),
        workforce=st.none()
        | st.builds(Workforce, workers=counts, slots=counts, free_slots=counts, held=counts, handling=counts),
        disabled_reason=st.none() | st.just("410"),
        telemetry_lag_ms=st.integers(0, 10**9),
        telemetry_off_since_ms=st.none() | st.integers(0, 10**12),
    )
)
def test_every_situation_has_a_verdict_that_agrees_with_its_evidence(situation: Situation) -> None:
    verdict = explain_window(situation)
    assert verdict.cause not in [
        one.cause for one in verdict.also if one.cause not in (Cause.LIMIT_REACHED, Cause.DOWNSTREAM_REFUSING)
    ]
    assert all(isinstance(line, str) for line in evidence_lines(verdict.evidence))
    for one in (verdict, *verdict.also):
        if "slots of the queue's concurrency limit are in use" in one.summary:
            assert one.evidence["running"] >= one.evidence["limit"] > 0
        if one.cause is Cause.NO_WORKERS:
            assert not one.evidence["dequeued"] or situation.handlers.ended == 0
            assert not one.evidence.get("workers")


def test_figures_for_people_have_units_and_no_exponents() -> None:
    evidence = {
        "depth": 1,
        "running": 1_200,
        "oldest_age_ms": 42_600,
        "span_ms": 17_300,
        "enqueued": 12,
        "failed": 1,
        "lapsed": 2,
        "handler_ms": 2_533.4,
        "error_rate": 0.12134,
        "limit": 4,
    }
    assert evidence_lines(evidence) == [
        "1 message waits",
        "1,200 with consumers",
        "the oldest has waited 42.6 s",
        "12 arrived in the last 17.3 s",
        "1 attempt failed in the last 17.3 s",
        "2 leases lapsed in the last 17.3 s",
        "a handler takes 2.5 s",
        "12 % of the attempts failed",
        "the concurrency limit is 4",
    ]


def test_evidence_of_earlier_versions_still_reads() -> None:
    assert evidence_lines({"depth": 3, "errors": [{"error": "boom", "deaths": 2}]}) == [
        "3 messages wait",
        "2 died of: boom",
    ]
