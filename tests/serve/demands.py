"""What each route demands: its role, and over which scope. A new route must be listed here."""

from __future__ import annotations

NOBODY = """
GET /dlq-status
GET /healthz
OPTIONS /hook/{name}
POST /hook/{name}
OPTIONS /hook/{organization}/{project}/{environment}/{name}
POST /hook/{organization}/{project}/{environment}/{name}
GET /livez
GET /metrics
GET /readyz
"""
"""No token of the API: probes, and what is signed. A token decides what `/metrics` and `/dlq-status` show."""
CHANNEL = """
DELETE /channel/{channelId}/consumer/{consumerId}/dlq
GET /channel/{channelId}/consumer/{consumerId}/dlq
POST /channel/{channelId}/consumer/{consumerId}/dlq
DELETE /channel/{channelId}/consumer/{consumerId}/job/{jobId}
GET /channel/{channelId}/consumer/{consumerId}/job/{jobId}
POST /channel/{channelId}/consumer/{consumerId}/job/{jobId}/requeue-dead-job
POST /channel/{channelId}/publish
"""
"""The tokens of a channel and its consumer."""
ANY = """
GET /api/v1/environments
GET /api/v1/me
"""
"""Every token, about all that it reaches."""
READ = """
GET /admin/queues
GET /admin/queues/{name}/dlq
GET /admin/queues/{name}/dlq/{letter_id}
GET /api/v1/alert-channels
GET /api/v1/alert-evaluator
GET /api/v1/alert-metrics
GET /api/v1/alert-notifications
GET /api/v1/alert-rules
GET /api/v1/alert-rules/{rule_id}
GET /api/v1/alert-silences
GET /api/v1/alerts
GET /api/v1/alerts/{alert_id}
GET /api/v1/annotations
GET /api/v1/apps
POST /api/v1/apps/{app}/plan
GET /api/v1/channels
GET /api/v1/disabled-endpoints
GET /api/v1/dlq/audit
GET /api/v1/dlq/consumers
GET /api/v1/dlq/groups
GET /api/v1/dlq/letters
GET /api/v1/dlq/letters/{letter_id}
GET /api/v1/dlq/tasks
GET /api/v1/dlq/tasks/{task_id}
GET /api/v1/dlq/tasks/{task_id}/samples
GET /api/v1/environments/{environment}/queue-overview
GET /api/v1/environments/{env}/queue-metrics
GET /api/v1/live
GET /api/v1/marks
GET /api/v1/messages/{message_id}
GET /api/v1/messages/{message_id}/outcome
GET /api/v1/messages/{message_id}/outcome/stream
GET /api/v1/messages/{message_id}/timeline
GET /api/v1/messages/{message_id}/why
GET /api/v1/operations
GET /api/v1/operations/stats
GET /api/v1/operations/{operation}
GET /api/v1/pipeline
GET /api/v1/pipeline/audit
GET /api/v1/queues
GET /api/v1/queues/{queue}
GET /api/v1/queues/{queue}/explain
GET /api/v1/queues/{queue}/fairness
GET /api/v1/queues/{queue}/log
GET /api/v1/queues/{queue}/messages
GET /api/v1/queues/{queue}/messages/find
GET /api/v1/queues/{queue}/metrics
GET /api/v1/schedules
GET /api/v1/schedules/{name}
GET /api/v1/search
GET /api/v1/secrets
GET /api/v1/spec
GET /api/v1/spec/history
GET /api/v1/spec/history/{revision}
POST /api/v1/spec/plan
GET /api/v1/webhooks
GET /api/v1/workers
GET /api/v1/workers/metrics
GET /api/v1/workers/{worker_id}/metrics
GET /api/v1/workers/{worker_id}/queues
"""
"""About one environment, for a reader."""
WRITE = """
POST /admin/queues/{name}/dlq/{letter_id}/replay
POST /api/v1/ack
POST /api/v1/ack/batch
POST /api/v1/alert-channels/{name}/test
POST /api/v1/alert-rules
DELETE /api/v1/alert-rules/{rule_id}
PUT /api/v1/alert-rules/{rule_id}
POST /api/v1/alert-silences
DELETE /api/v1/alert-silences/{silence_id}
POST /api/v1/alerts/{alert_id}/acknowledge
POST /api/v1/alerts/{alert_id}/resolve
POST /api/v1/annotations
DELETE /api/v1/annotations/{annotation_id}
GET /api/v1/direct
POST /api/v1/disabled-endpoints/enable
POST /api/v1/dlq/letters/{letter_id}/redrive
POST /api/v1/dlq/redrives
POST /api/v1/dlq/tasks/{task_id}/cancel
POST /api/v1/dlq/tasks/{task_id}/pause
POST /api/v1/dlq/tasks/{task_id}/resume
POST /api/v1/extend
POST /api/v1/groups/{group}/members
POST /api/v1/messages/{message_id}/cancel
POST /api/v1/messages/{message_id}/priority
POST /api/v1/messages/{message_id}/reschedule
POST /api/v1/messages/{message_id}/run
POST /api/v1/nack
POST /api/v1/operations/{operation}/cancel
POST /api/v1/operations/{operation}/retry
GET /api/v1/pop
POST /api/v1/pop
POST /api/v1/progress
POST /api/v1/push
POST /api/v1/queues/{queue}/log/replays
POST /api/v1/queues/{queue}/messages
POST /api/v1/queues/{queue}/messages/cancel
POST /api/v1/queues/{queue}/messages/cancellations
POST /api/v1/queues/{queue}/pause
POST /api/v1/queues/{queue}/resume
POST /api/v1/revoked
POST /api/v1/schedules/{name}/pause
POST /api/v1/schedules/{name}/resume
POST /api/v1/schedules/{name}/run
"""
"""About one environment, for a writer."""
ADMIN = """
DELETE /admin/queues/{name}/dlq/{letter_id}
DELETE /api/v1/alert-channels/{name}
PUT /api/v1/alert-channels/{name}
PUT /api/v1/apps/{app}
DELETE /api/v1/channels/{channel_id}
PUT /api/v1/channels/{channel_id}
POST /api/v1/channels/{channel_id}/consumers/{consumer_id}/tokens
POST /api/v1/channels/{channel_id}/tokens
DELETE /api/v1/dlq/letters/{letter_id}
POST /api/v1/dlq/purges
PUT /api/v1/environments/{environment}
DELETE /api/v1/queues/{queue}
PATCH /api/v1/queues/{queue}
PUT /api/v1/queues/{queue}
POST /api/v1/schedules
DELETE /api/v1/schedules/{name}
PUT /api/v1/schedules/{name}
DELETE /api/v1/secrets/{name}
PUT /api/v1/secrets/{name}
PUT /api/v1/spec
"""
"""About one environment, for its admin."""
OWN_ADMIN = """
GET /api/v1/audit-log
GET /api/v1/tokens
POST /api/v1/tokens
DELETE /api/v1/tokens/{token_id}
POST /api/v1/tokens/{token_id}/rotate
"""
"""About everything in the scope of an admin."""
OPERATOR = """
POST /api/v1/dlq/audit
GET /api/v1/pipeline/metrics
PUT /api/v1/pipeline/metrics
"""
"""About the installation."""

RANKS = ("read", "write", "admin", "operator")


def demands() -> dict[str, str]:
    """The least role of each route that takes a token of the API."""
    roles = {
        ANY: "read",
        READ: "read",
        WRITE: "write",
        ADMIN: "admin",
        OWN_ADMIN: "admin",
        OPERATOR: "operator",
    }
    return {route: role for block, role in roles.items() for route in block.split("\n") if route}


def listed(*blocks: str) -> list[str]:
    """The routes of these blocks."""
    return [route for block in blocks for route in block.split("\n") if route]
