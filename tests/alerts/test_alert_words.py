"""Lists of alerts: a number stands beside the text of its own moment, and times are said in words."""

from __future__ import annotations

from typing import Any

import pytest
from tests.alerts.simulation import MINUTE, Simulation, Story
from tests.alerts.test_days import add_rule

from weir.alerts.alert_metrics import CATALOGUE, Metric, condition_words, spell_value, value_words
from weir.alerts.alert_records import AlertRecords
from weir.alerts.notifications import NotificationKind
from weir.alerts.templates import mail_text
from weir.api.schemas.alerts import alert_view
from weir.cli.alert_words import ALERT_COLUMNS, RULE_COLUMNS, SILENCE_COLUMNS
from weir.cli.output import Columns, print_items
from weir.control.database import Database
from weir.model.names import EnvironmentRef

ALERT = {
    "id": "0198c0de-7aaa-7bbb-8ccc-0123456789ab", "state": "firing", "rule_name": "orders wait",
    "queue": "orders", "metric_words": "age of the oldest message",
    "value_text": "3 min 10 s", "fired_value_text": "1 min 1 s",
    "fired_at_ms": 1_763_337_600_000, "unknown_since_ms": None, "summary": "480 are ready and none runs",
}  # fmt: skip


def printed(columns: Columns, row: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_items([row], columns, as_json=False)
    (line,) = capsys.readouterr().out.splitlines()
    return line.split("\t")


async def test_an_alert_keeps_the_value_that_it_fired_at_beside_the_newest(
    database: Database, environment: EnvironmentRef
) -> None:
    story = Story(depth={"q": lambda at: 500 if at < 10 * MINUTE else 900})
    simulation = Simulation(database, environment, story)
    await add_rule(database, environment)
    await simulation.run(20 * MINUTE)
    (alert,) = await AlertRecords(database).of(environment)
    assert (alert.fired_value, alert.value) == (500, 900)
    found = await AlertRecords(database).find(environment, alert.id)
    view = alert_view(found)
    assert view.fired_value == 500
    assert (view.fired_value_text, view.value_text) == ("500 messages", "900 messages")
    assert view.condition == "backlog over 100 messages for 5 minutes"


def test_the_reason_stands_beside_the_number_of_its_moment(capsys: pytest.CaptureFixture[str]) -> None:
    cells = printed(ALERT_COLUMNS, ALERT, capsys)
    assert cells == [
        "firing", "orders wait", "orders", "1 min 1 s", "3 min 10 s",
        "age of the oldest message 1 min 1 s on 2025-11-17 00:00:00: 480 are ready and none runs",
        ALERT["id"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "now"), [({"state": "resolved"}, "over"), ({"unknown_since_ms": 1}, "unknown")]
)
def test_a_value_that_holds_no_more_is_not_shown_as_now(
    change: dict[str, Any], now: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(ALERT_COLUMNS, {**ALERT, **change}, capsys)[4] == now


def test_rules_and_silences_say_times_as_people_do(capsys: pytest.CaptureFixture[str]) -> None:
    rule = {
        "id": "r", "name": "slow", "queue": None, "condition": "p95 wait over 1 min 30 s for 5 minutes",
        "channels": ["ops", "me"], "enabled": True,
    }  # fmt: skip
    assert printed(RULE_COLUMNS, rule, capsys)[2:4] == [rule["condition"], "ops, me"]
    silence = {
        "id": "s", "rule_name": None, "queue": "q", "ends_at_ms": 1_763_337_600_000, "comment": "moving",
    }  # fmt: skip
    assert printed(SILENCE_COLUMNS, silence, capsys) == [
        "every rule", "q", "2025-11-17 00:00:00", "moving", "s",
    ]  # fmt: skip


@pytest.mark.parametrize("value", [None, float("inf")])
def test_a_queue_that_never_drains_is_told_so(value: float | None) -> None:
    """The evaluator measures an infinite time, stores and pages know it as null."""
    assert spell_value(Metric.DRAIN_TIME, value) == "endless"


@pytest.mark.parametrize(
    ("metric", "operator", "threshold", "window_ms", "words"),
    [
        ("latency_p95", ">", 30_000, 60_000, "p95 wait over 30 s for 1 minute"),
        ("backlog", ">=", 1, 90_000, "backlog at least 1 message for 1 min 30 s"),
        ("error_rate", ">", 0.1, 3_600_000, "share of failed attempts over 10 % for 1 hour"),
        ("dead_letters", ">", 20, 300_000, "deaths over 20 messages in 5 minutes"),
        ("throughput", "<", 1, 2 * 86_400_000, "throughput under 1 messages/s for 2 days"),
        ("oldest_age", "<=", 300_000, 5_000, "age of the oldest message at most 5 min for 5 s"),
    ],
)
def test_a_rule_reads_as_a_sentence_with_units(
    metric: str, operator: str, threshold: float, window_ms: int, words: str
) -> None:
    assert condition_words(Metric(metric), operator, threshold, window_ms) == words


@pytest.mark.parametrize("metric", Metric)
def test_every_metric_has_words_of_its_own(metric: Metric) -> None:
    assert [one.words for one in CATALOGUE.values()].count(CATALOGUE[metric].words) == 1
    assert condition_words(metric, ">", 1, 60_000).startswith(CATALOGUE[metric].words)


@pytest.mark.parametrize("metric", Metric)
def test_events_are_counted_in_their_window_and_everything_else_holds_for_it(metric: Metric) -> None:
    is_counted = CATALOGUE[metric].doc.endswith("in the window.")
    assert condition_words(metric, ">", 1, 60_000).endswith("in 1 minute" if is_counted else "for 1 minute")
    assert value_words(metric, 5).startswith(f"{CATALOGUE[metric].words}{':' if is_counted else ' is'} ")


TOLD: dict[str, Any] = {
    "environment": "prod",
    "rule": {"name": "deep", "metric": "backlog", "operator": ">", "threshold": 100, "window_ms": 300_000},
    "alerts": [
        {
            "queue": "orders", "state": "firing", "value": 500, "cause": "slow_handlers",
            "verdict": {"summary": "handlers take 3.5 s, usually 0.2 s"},
            "fired_at_ms": 1_763_337_600_000, "resolved_at_ms": None,
        }
    ],
    "more": 0,
}  # fmt: skip


def test_a_notification_says_the_value_with_its_unit_and_why() -> None:
    text = mail_text(TOLD, NotificationKind.FIRING, link="")
    assert "`orders`: backlog is 500 messages (handlers take 3.5 s, usually 0.2 s)" in text


def test_a_notification_of_an_end_says_since_when_it_is_over_and_how_long_it_lasted() -> None:
    over = {**TOLD["alerts"][0], "state": "resolved", "resolved_at_ms": 1_763_337_960_000}
    text = mail_text({**TOLD, "alerts": [over]}, NotificationKind.RESOLVED, link="")
    condition = "backlog over 100 messages for 5 minutes"
    assert f"`orders`: recovered at 2025-11-17 00:06:00 UTC, after 6 min ({condition})" in text
