"""Alerts, rules and silences as people read them: units in words, numbers beside texts of their moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weir.alerts.alert_metrics import Metric, spell_value
from weir.cli.output import shown_time
from weir.cli.tables import OutputTable, id_column, long_column, number_column
from weir.model.wording import duration

Document = Mapping[str, Any]


def alert_table(alerts: list[dict[str, Any]]) -> OutputTable:
    """What was raised. The reason is that of the moment of firing, and so is the number beside it."""
    table = OutputTable(
        "state",
        "rule",
        "queue",
        number_column("fired at"),
        number_column("now"),
        long_column("why it fired"),
        id_column(),
    )
    for alert in alerts:
        fired = spell_value(Metric(alert["metric"]), alert["fired_value"])
        table.add_row(
            alert["state"],
            alert["rule_name"],
            alert["queue"] or "",
            fired,
            _now(alert),
            f"{alert['metric']} was {fired} on {shown_time(alert['fired_at_ms'])}: {alert['summary']}",
            alert["id"],
        )
    return table


def _now(alert: Document) -> str:
    if alert["state"] == "resolved":
        return "over"
    if alert["unknown_since_ms"] is not None:
        return "unknown"
    return spell_value(Metric(alert["metric"]), alert["value"])


def rule_table(rules: list[dict[str, Any]]) -> OutputTable:
    table = OutputTable("name", "queue", "speaks when", long_column("channels"), "state", id_column())
    for rule in rules:
        threshold = spell_value(Metric(rule["metric"]), rule["threshold"])
        table.add_row(
            rule["name"],
            rule["queue"] or "",
            f"{rule['metric']} {rule['operator']} {threshold} for {duration(rule['window_ms'])}",
            ", ".join(rule["channels"]),
            "enabled" if rule["enabled"] else "disabled",
            rule["id"],
        )
    return table


def silence_table(silences: list[dict[str, Any]]) -> OutputTable:
    table = OutputTable("rule", "queue", "until", long_column("comment"), id_column())
    for silence in silences:
        table.add_row(
            silence["rule_name"] or "every rule",
            silence["queue"] or "every queue",
            shown_time(silence["ends_at_ms"]),
            silence["comment"],
            silence["id"],
        )
    return table
