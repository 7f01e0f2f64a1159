"""The columns of alerts, rules and silences: units in words, each number beside the text of its moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weir.alerts.alert_metrics import Metric, spell_value
from weir.cli.output import Columns, shown_time
from weir.cli.tables import id_column, long_column, number_column
from weir.model.wording import duration

Document = Mapping[str, Any]


def _spell(row: Document, field: str) -> str:
    return spell_value(Metric(row["metric"]), row[field])


def _now(alert: Document) -> str:
    if alert["state"] == "resolved":
        return "over"
    return "unknown" if alert["unknown_since_ms"] is not None else _spell(alert, "value")


def _reason(alert: Document) -> str:
    """The reason is that of the moment of firing, and so is the number in it."""
    at = shown_time(alert["fired_at_ms"])
    return f"{alert['metric']} was {_spell(alert, 'fired_value')} on {at}: {alert['summary']}"


def _condition(rule: Document) -> str:
    window = duration(rule["window_ms"])
    return f"{rule['metric']} {rule['operator']} {_spell(rule, 'threshold')} for {window}"


ALERT_COLUMNS: Columns = {
    "state": "state",
    "rule": "rule_name",
    "queue": "queue",
    number_column("fired at"): lambda alert: _spell(alert, "fired_value"),
    number_column("now"): _now,
    long_column("why it fired"): _reason,
    id_column(): "id",
}
RULE_COLUMNS: Columns = {
    "name": "name",
    "queue": "queue",
    "fires when": _condition,
    long_column("channels"): "channels",
    "state": lambda rule: "enabled" if rule["enabled"] else "disabled",
    id_column(): "id",
}
SILENCE_COLUMNS: Columns = {
    "rule": lambda silence: silence["rule_name"] or "every rule",
    "queue": lambda silence: silence["queue"] or "every queue",
    "until": lambda silence: shown_time(silence["ends_at_ms"]),
    long_column("comment"): "comment",
    id_column(): "id",
}
