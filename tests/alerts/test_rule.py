"""What can be a rule, and what cannot."""

from __future__ import annotations

import math
from typing import Any

import pytest

from weir.alerts.alert_metrics import CATALOGUE, Metric, parse_metric
from weir.alerts.rule import Operator, draft_of, parse_operator
from weir.errors import InvalidInput

GOOD: dict[str, Any] = {"name": "deep", "metric": "backlog", "operator": ">", "threshold": 100, "queue": "q"}


def test_every_metric_of_the_catalogue_makes_a_rule() -> None:
    assert set(CATALOGUE) == set(Metric)
    for metric in Metric:
        draft = draft_of(**{**GOOD, "metric": metric.value, "threshold": 0.5, "queue": None})
        assert draft.metric is metric


@pytest.mark.parametrize(
    "change",
    [
        {"threshold": math.nan},
        {"threshold": math.inf},
        {"threshold": -1},
        {"threshold": True},
        {"threshold": "7"},
        {"window_ms": 0},
        {"window_ms": 365 * 86_400_000},
        {"window_ms": 1.5},
        {"cooldown_ms": -1},
        {"metric": "mood"},
        {"metric": ""},
        {"operator": "=="},
        {"name": ""},
        {"name": "a\nb"},
        {"name": "x" * 256},
        {"queue": ""},
        {"queue": "\x00"},
        {"channels": tuple(f"c{n}" for n in range(17))},
        {"metric": "error_rate", "threshold": 1.5},
        {"metric": "worker_lag"},
        {"clear_threshold": 101},
        {"clear_threshold": math.nan},
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        draft_of(**{**GOOD, **change})


def test_hysteresis_keeps_a_value_from_counting_as_clear() -> None:
    draft = draft_of(**{**GOOD, "clear_threshold": 80})
    assert [draft.is_clear(value) for value in (80, 81, 100, 101)] == [True, False, False, False]
    falling = draft_of(
        **{**GOOD, "metric": "throughput", "operator": "<", "threshold": 5, "clear_threshold": 8}
    )
    assert [falling.is_clear(value) for value in (4, 5, 7.9, 8)] == [False, False, False, True]


def test_words_from_other_systems_are_understood() -> None:
    assert parse_metric("LATENCY") is Metric.LATENCY_MEAN
    assert parse_operator("GREATER_THAN") is Operator.ABOVE
    assert parse_operator("lte") is Operator.AT_MOST
