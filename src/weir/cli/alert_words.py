"""The columns of alerts, rules and silences, with values and units as people write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weir.cli.output import Columns, shown_time
from weir.cli.tables import id_column, long_column, number_column

Document = Mapping[str, Any]


def _now(alert: Document) -> str:
    if alert["state"] == "resolved":
        return "over"
    return "unknown" if alert["unknown_since_ms"] is not None else alert["value_text"]


def _reason(alert: Document) -> str:
    """The reason and the value at the moment when the alert fired."""
    at = shown_time(alert["fired_at_ms"])
    return f"{alert['metric_words']} {alert['fired_value_text']} on {at}: {alert['summary']}"


ALERT_COLUMNS: Columns = {
    "state": "state",
    "rule": "rule_name",
    "queue": "queue",
    number_column("fired at"): "fired_value_text",
    number_column("now"): _now,
    long_column("why it fired"): _reason,
    id_column(): "id",
}
RULE_COLUMNS: Columns = {
    "name": "name",
    "queue": "queue",
    "fires when": "condition",
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
