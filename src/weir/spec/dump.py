"""IR to plain data: the canonical JSON form, which `load` reads again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weir.spec.history import history_text
from weir.spec.ir import (
    SCHEME_OPTIONS,
    Action,
    AlertSpec,
    AppSpec,
    ChannelSpec,
    DeliverTo,
    EnqueueTo,
    MapToCommand,
    QueueSpec,
    ScheduleSpec,
    Verification,
    WebhookSpec,
)


def dumped(app: AppSpec) -> dict[str, Any]:
    """The whole app as data for JSON. Loading it gives an equal app."""
    return _without_empty(
        {
            "app": app.name,
            "concurrency": app.concurrency,
            "queues": {queue.name: dumped_queue(queue) for queue in app.queues},
            "webhooks": {webhook.name: _webhook(webhook) for webhook in app.webhooks},
            "channels": {channel.id: _channel(channel) for channel in app.channels},
            "alerts": {alert.name: _alert(alert) for alert in app.alerts},
            "schedules": {schedule.name: dumped_schedule(schedule) for schedule in app.schedules},
        }
    )


def dumped_queue(queue: QueueSpec) -> dict[str, Any]:
    """One queue with every value, also the defaults."""
    delivery = queue.delivery
    return _without_empty(
        {
            "message_type": {
                field.name: field.type + ("?" if field.optional else "") for field in queue.message_type
            },
            "ordering": queue.ordering.value,
            "retention": _without_empty(
                {"max_age_ms": queue.retention.max_age_ms, "max_depth": queue.retention.max_depth}
            ),
            "delivery": _without_empty(
                {
                    "max_attempts": delivery.max_attempts,
                    "initial_backoff_ms": delivery.initial_backoff_ms,
                    "max_backoff_ms": delivery.max_backoff_ms,
                    "jitter": delivery.jitter,
                    "lease_ms": delivery.lease_ms,
                    "handler_timeout_ms": delivery.handler_timeout_ms,
                    "dead_letter_queue": delivery.dead_letter_queue,
                }
            ),
            "concurrency": queue.concurrency,
            "priority": queue.priority,
            "message_ttl_ms": queue.message_ttl_ms,
            "idempotency_window_ms": queue.idempotency_window_ms,
            "trace": queue.trace.value,
            "history": None if queue.history == 1 else history_text(queue.history),
            "log_ms": queue.log_ms,
            **_action(queue.action),
        }
    )


def _action(action: Action | None) -> dict[str, Any]:
    match action:
        case MapToCommand():
            return {"map_to": _map_to(action), **_action(action.then)}
        case EnqueueTo():
            return {"enqueue": _without_empty({"queue": action.queue, "inputs": dict(action.inputs)})}
        case DeliverTo():
            return {
                "deliver": _without_empty(
                    {"url": action.url, "secret": list(action.secrets), "timeout_ms": action.timeout_ms}
                )
            }
        case None:
            return {}


def _map_to(action: MapToCommand) -> dict[str, Any]:
    return _without_empty({"entity": action.entity, "command": action.command, "inputs": dict(action.inputs)})


def _webhook(webhook: WebhookSpec) -> dict[str, Any]:
    return _without_empty(
        {
            "queue": webhook.queue,
            "verify": _verification(webhook.verification) if webhook.verification else None,
            "map_to": _map_to(webhook.action) if webhook.action else None,
            "idempotency_header": webhook.idempotency_header,
            "key": webhook.key,
            "max_body_bytes": webhook.max_body_bytes,
        }
    )


def _verification(verification: Verification) -> dict[str, Any]:
    options = {
        "header": verification.header,
        "prefix": verification.prefix or None,
        "algorithm": verification.algorithm,
        "encoding": verification.encoding,
        "timestamp_header": verification.timestamp_header,
        "tolerance_seconds": verification.tolerance_s,
    }
    read = SCHEME_OPTIONS[verification.scheme]
    return _without_empty(
        {
            "scheme": verification.scheme.value,
            "secret": list(verification.secrets),
            **{name: value for name, value in options.items() if name.removesuffix("_seconds") in read},
        }
    )


def _channel(channel: ChannelSpec) -> dict[str, Any]:
    return _without_empty(
        {
            "name": channel.name,
            "consumers": {
                consumer.id: {"name": consumer.name, "queue": consumer.queue}
                for consumer in channel.consumers
            },
        }
    )


def _alert(alert: AlertSpec) -> dict[str, Any]:
    return _without_empty(
        {
            "when": {"metric": alert.metric, "operator": alert.operator, "threshold": alert.threshold},
            "queue": alert.queue,
            "window_ms": alert.window_ms,
            "cooldown_ms": alert.cooldown_ms,
            "auto_resolve": alert.auto_resolve,
            "channels": list(alert.channels),
        }
    )


def dumped_schedule(schedule: ScheduleSpec) -> dict[str, Any]:
    """One schedule with every value, also the defaults. An empty payload is a value too."""
    timing = schedule.timing
    return {
        **_without_empty(
            {
                "cron": timing.cron,
                "timezone": timing.timezone if timing.cron is not None else None,
                "every_ms": timing.every_ms,
                "queue": schedule.queue,
            }
        ),
        "payload": schedule.payload,
        "missed": schedule.missed.value,
        "overlap": schedule.overlap.value,
    }


def _without_empty(data: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out None and empty maps and lists."""
    return {key: value for key, value in data.items() if value is not None and value != {} and value != []}
