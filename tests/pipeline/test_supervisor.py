"""The supervisor: restarts, pauses, resumes, and says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from weir.model.backoff import Backoff
from weir.pipeline.batches import Landed
from weir.pipeline.pipeline_metrics import PipelineMetrics
from weir.pipeline.supervisor import Patience, QuerySupervisor
from weir.telemetry.progress import PipelineStatus

QUICK = Patience(backoff=Backoff(first_s=0.01, longest_s=0.02), failures_to_pause=3)


class Script:
    """Queries that end as they are told to, one after the other."""

    def __init__(self, *ends: Exception | None, after: Callable[[], None] = lambda: None) -> None:
        self.ends = list(ends)
        self.started = 0
        self.stopped = 0
        self._after = after

    def start(self) -> Script:
        self.started += 1
        return self

    def awaitTermination(self, timeout: float) -> bool | None:
        end = self.ends.pop(0) if self.ends else None
        self._after()
        if end is not None:
            raise end
        return True

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> PipelineMetrics:
    return PipelineMetrics(registry, metrics=("queue",))


def supervised(
    script: Script, metrics: PipelineMetrics, **changes: object
) -> tuple[QuerySupervisor, list[str]]:
    states: list[str] = []

    def publish() -> None:
        if not states or states[-1] != metrics.status.state:
            states.append(metrics.status.state)

    answers = changes.get("stores_answer", lambda: True)
    supervisor = QuerySupervisor(
        script.start,
        stores_answer=answers,  # type: ignore[arg-type]
        metrics=metrics,
        publish=publish,
        patience=QUICK,
    )
    return supervisor, states


def test_a_query_that_ends_by_itself_ends_the_run(metrics: PipelineMetrics) -> None:
    script = Script(None)
    supervisor, states = supervised(script, metrics)
    supervisor.run()
    assert (script.started, script.stopped) == (1, 1)
    assert states == ["starting", "running", "stopped"]


def test_a_failed_query_is_started_again(metrics: PipelineMetrics, registry: CollectorRegistry) -> None:
    script = Script(RuntimeError("boom"), RuntimeError("boom"), None)
    supervisor, states = supervised(script, metrics)
    supervisor.run()
    assert script.started == 3
    assert states.count("retrying") == 2
    assert registry.get_sample_value("weir_metrics_query_failures_total") == 2


def test_after_three_failures_it_pauses_until_the_stores_answer(metrics: PipelineMetrics) -> None:
    answers = iter([False, False, True])
    script = Script(*[RuntimeError("ClickHouse is away")] * 3, None)
    supervisor, states = supervised(script, metrics, stores_answer=lambda: next(answers))
    supervisor.run()
    assert states == [
        "starting", "running", "retrying", "starting", "running", "retrying",
        "starting", "running", "paused", "starting", "running", "stopped",
    ]  # fmt: skip
    assert next(answers, None) is None


def test_failures_count_until_a_batch_has_landed_however_long_each_query_ran(
    metrics: PipelineMetrics,
) -> None:
    shown: list[tuple[str, str]] = []
    script = Script(*[RuntimeError("the worker did not connect")] * 3, None)
    supervisor, states = supervised(script, metrics)
    script._after = lambda: shown.append((metrics.status.state, metrics.status.error))
    supervisor.run()
    assert "paused" in states
    assert shown == [("running", ""), *[("running", "the worker did not connect")] * 3]


def test_a_batch_that_lands_ends_the_count_of_failures_and_their_error(metrics: PipelineMetrics) -> None:
    script = Script(*[RuntimeError("boom")] * 4, None)
    supervisor, states = supervised(script, metrics)
    script._after = lambda: supervisor.note_landed() if script.started in (2, 4) else None
    supervisor.run()
    assert "paused" not in states
    supervisor.note_landed()
    assert metrics.status.error == ""


def test_a_pipeline_that_did_not_stop_counts_as_dead_when_the_next_one_starts(
    metrics: PipelineMetrics,
) -> None:
    killed = PipelineStatus(state="running", updated_ms=5_000, since_ms=1, deaths=2)
    metrics.continue_from(killed)
    assert (metrics.status.deaths, metrics.status.died_ms) == (3, 5_000)
    metrics.continue_from(replace(killed, state="stopped", deaths=3, died_ms=5_000))
    assert (metrics.status.deaths, metrics.status.died_ms) == (3, 5_000)


def test_a_pause_says_why(metrics: PipelineMetrics) -> None:
    seen: list[str] = []
    script = Script(*[RuntimeError("a\nweir.errors.WarehouseUnavailable: ClickHouse is away\nb")] * 3, None)

    def answer() -> bool:
        seen.append(metrics.status.error)
        return True

    supervised(script, metrics, stores_answer=answer)[0].run()
    assert seen == ["weir.errors.WarehouseUnavailable: ClickHouse is away"]


def test_stopping_ends_a_query_that_runs(metrics: PipelineMetrics) -> None:
    script = Script()
    supervisor, states = supervised(script, metrics)
    script._after = supervisor.stop
    supervisor.run()
    assert script.stopped == 1
    assert states[-1] == "stopped"


def test_what_landed_is_counted_for_prometheus_and_for_others(
    metrics: PipelineMetrics, registry: CollectorRegistry
) -> None:
    one = Landed(metric="queue", events=10, rows=2, rejected=1, gaps=1, newest_ms=5_000, busy_s=0.2)
    two = Landed(metric="worker", events=3, rows=3, rejected=0, gaps=0, newest_ms=4_000, busy_s=0.1)
    metrics.count_batch(7, [one, two])
    assert registry.get_sample_value("weir_metrics_events_total", {"metric": "queue"}) == 10
    assert registry.get_sample_value("weir_metrics_newest_event_timestamp_seconds") == 5
    status = metrics.status
    assert (status.batch, status.batch_events, status.events, status.rejected, status.gaps) == (
        7,
        13,
        13,
        1,
        1,
    )
