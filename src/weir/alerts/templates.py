"""The text of a notification for Slack, mail and Alertmanager. Pure; every name in it is escaped."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from weir.alerts.alert_metrics import Metric, condition_words, value_words
from weir.alerts.notifications import NotificationKind
from weir.model.clock import iso_time
from weir.model.wording import amount, duration, moment

MAX_TEXT = 500
SLACK_ALERTS = 10
# Go's zero time: Alertmanager sends it as the end of an alert that still fires.
_NOT_ENDED = "0001-01-01T00:00:00Z"

Document = Mapping[str, Any]
"""The data of a notification, as `notifications.document_of` makes it."""


def slack_message(document: Document, kind: NotificationKind, *, link: str) -> dict[str, Any]:
    """The body of a Slack webhook. Names are escaped, so that they cannot mention anybody or add a link."""
    lines = [f"*{slack_escaped(subject(document, kind))}*"]
    lines += [f"• {slack_escaped(_line(document, alert))}" for alert in document["alerts"][:SLACK_ALERTS]]
    more = document["more"] + max(len(document["alerts"]) - SLACK_ALERTS, 0)
    if more:
        lines.append(f"… and {more} more")
    if link:
        lines.append(f"<{slack_escaped(link)}|Open Weir>")
    return {"text": "\n".join(lines), "unfurl_links": False, "unfurl_media": False}


def mail_text(document: Document, kind: NotificationKind, *, link: str) -> str:
    lines = [subject(document, kind), ""]
    lines += [_line(document, alert) for alert in document["alerts"]]
    if document["more"]:
        lines.append(f"… and {document['more']} more")
    if link:
        lines += ["", link]
    return "\n".join(lines) + "\n"


def subject(document: Document, kind: NotificationKind) -> str:
    """One line, safe as a mail header: `[FIRING] deep orders: 3 alerts in default`."""
    rule, alerts = document["rule"], document["alerts"]
    count = len(alerts) + document["more"]
    where = f"`{alerts[0]['queue']}`" if count == 1 and alerts[0]["queue"] else amount(count, "alert")
    text = f"[{kind.value.upper()}] {rule['name']}: {where} in {document['environment']}"
    return one_line(text)[:200]


def alertmanager_payload(
    document: Document, kind: NotificationKind, *, receiver: str, link: str
) -> dict[str, Any]:
    """The body of an Alertmanager webhook, version 4: labels and annotations are texts."""
    rule = document["rule"]
    common = {
        "alertname": rule["name"],
        "metric": rule["metric"],
        "organization": document["organization"],
        "project": document["project"],
        "environment": document["environment"],
    }
    status = "resolved" if kind is NotificationKind.RESOLVED else "firing"
    return {
        "version": "4",
        "groupKey": _fingerprint({"rule": rule["id"]}),
        "truncatedAlerts": document["more"],
        "status": status,
        "receiver": receiver,
        "groupLabels": {"alertname": rule["name"]},
        "commonLabels": common,
        "commonAnnotations": {"condition": _condition(rule)},
        "externalURL": link,
        "notification_reason": kind.value,
        "alerts": [_alertmanager_alert(document, alert, common, link=link) for alert in document["alerts"]],
    }


def _alertmanager_alert(
    document: Document, alert: Mapping[str, Any], common: Mapping[str, str], *, link: str
) -> dict[str, Any]:
    labels = {**common, "cause": alert["cause"], **({"queue": alert["queue"]} if alert["queue"] else {})}
    resolved_ms = alert["resolved_at_ms"]
    return {
        "status": "resolved" if alert["state"] == "resolved" else "firing",
        "labels": labels,
        "annotations": {
            "summary": capped(_line(document, alert)),
            "cause": capped(alert["verdict"].get("summary", "")),
            "value": _value(alert["value"]),
            "alert_id": alert["id"],
        },
        "startsAt": iso_time(alert["fired_at_ms"]),
        "endsAt": _NOT_ENDED if resolved_ms is None else iso_time(resolved_ms),
        "generatorURL": link,
        "fingerprint": _fingerprint({"rule": document["rule"]["id"], "queue": alert["queue"]}),
    }


def slack_escaped(text: str) -> str:
    """A text with Slack's three control characters escaped, cut to `MAX_TEXT`."""
    return capped(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def one_line(text: str) -> str:
    """The text without characters that could begin a new header or line."""
    return "".join(char if char.isprintable() else " " for char in text)


def capped(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _line(document: Document, alert: Mapping[str, Any]) -> str:
    where = f"`{alert['queue']}`: " if alert["queue"] else ""
    if alert["state"] == "resolved":
        return one_line(f"{where}recovered{_end(alert)} ({_condition(document['rule'])})")
    why = alert["verdict"].get("summary") or alert["cause"]
    metric = Metric(document["rule"]["metric"])
    return one_line(f"{where}{value_words(metric, alert['value'])} ({why})")


def _end(alert: Mapping[str, Any]) -> str:
    """Since when an alert is over, and how long it lasted."""
    ended_ms = alert["resolved_at_ms"]
    if ended_ms is None:
        return ""
    return f" at {moment(ended_ms)}, after {duration(max(ended_ms - alert['fired_at_ms'], 0))}"


def _condition(rule: Mapping[str, Any]) -> str:
    return condition_words(Metric(rule["metric"]), rule["operator"], rule["threshold"], rule["window_ms"])


def _value(value: float | None) -> str:
    return "endless" if value is None else f"{value:,.4g}" if value < 1_000 else f"{value:,.0f}"


def _fingerprint(names: Mapping[str, str]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for key, value in sorted(names.items()):
        for part in (key, value):
            # With its length, so that other names cannot give the same bytes.
            data = part.encode()
            digest.update(len(data).to_bytes(4, "little") + data)
    return digest.hexdigest()
