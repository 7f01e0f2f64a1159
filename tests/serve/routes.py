"""One request for every route of the API, such that it gets past the checks and asks the stores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx2

QUEUE = "orders"
SPEC = """app Shop {
  queue orders {}
  queue other {}
  webhook Open { queue: orders }
  schedule Known { every: 1s, queue: other }
}"""
_APP = "app Mine { queue mine {} }"
_LEASE = {"queue": QUEUE, "id": str(uuid4()), "lease": str(uuid4())}
_RULE = {"name": "late", "metric": "backlog", "operator": ">", "threshold": 5}
_HOURLY = {"queue": QUEUE, "cron": "0 * * * *"}
_FRESH = {"name": "Fresh", "consumers": [{"id": "Mail", "name": "Mail", "queue": "third"}]}
_EVENTS = {"name": "Events", "consumers": [{"id": "Mail", "name": "Mail", "queue": "other"}]}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request: its route as the table spells it, its path, and what it carries."""

    route: str
    path: str
    body: Any = None
    operator: bool = False

    @property
    def method(self) -> str:
        return self.route.split()[0]


def asked(route: str, body: Any = None, *, query: str = "", operator: bool = False, **parts: str) -> Asked:
    path = route.split()[1]
    for name, value in parts.items():
        path = path.replace("{" + name + "}", value)
    path = path.replace("{channelId}", "Events").replace("{consumerId}", "Mail")
    while "{" in path:
        path = path[: path.index("{")] + str(uuid4()) + path[path.index("}") + 1 :]
    return Asked(route=route, path=path + query, body=body, operator=operator)


HERE = {"organization": "default", "project": "default", "environment": "default"}
REQUESTS: tuple[Asked, ...] = (
    asked("GET /api/v1/secrets"),
    asked("PUT /api/v1/secrets/{name}", {"value": "x" * 32}, name="HOOK"),
    asked("DELETE /api/v1/secrets/{name}", name="HOOK"),
    asked("GET /livez"),
    asked("GET /healthz"),
    asked("GET /readyz"),
    asked("GET /metrics"),
    asked("POST /api/v1/push", {"items": [{"queue": QUEUE, "payload": 1}]}),
    asked("POST /api/v1/queues/{queue}/messages", {"raw": 1}, queue=QUEUE),
    asked("POST /hook/{name}", {"hook": 1}, name="Open"),
    asked("POST /hook/{organization}/{project}/{environment}/{name}", {"hook": 1}, **HERE, name="Open"),
    asked("GET /api/v1/pop", query=f"?queue={QUEUE}"),
    asked("POST /api/v1/pop", {"queue": QUEUE}),
    asked("POST /api/v1/ack", _LEASE),
    asked("POST /api/v1/ack/batch", {"acknowledgments": [{**_LEASE, "status": "completed"}]}),
    asked("POST /api/v1/nack", {**_LEASE, "error": "x"}),
    asked("POST /api/v1/extend", {**_LEASE, "lease_ms": 30_000}),
    asked("POST /api/v1/revoked", {"leases": [_LEASE]}),
    asked("GET /api/v1/queues"),
    asked("GET /api/v1/queues/{queue}", queue=QUEUE),
    asked("PUT /api/v1/queues/{queue}", {}, queue="third"),
    asked("PATCH /api/v1/queues/{queue}", {}, queue=QUEUE),
    asked("DELETE /api/v1/queues/{queue}", queue="fourth"),
    asked("POST /api/v1/queues/{queue}/pause", queue="other"),
    asked("POST /api/v1/queues/{queue}/resume", queue="other"),
    asked("GET /api/v1/queues/{queue}/explain", queue=QUEUE),
    asked("GET /api/v1/queues/{queue}/metrics", queue=QUEUE),
    asked("GET /api/v1/queues/{queue}/fairness", queue=QUEUE),
    asked("GET /api/v1/environments"),
    asked("PUT /api/v1/environments/{environment}", {}, environment="default"),
    asked("GET /api/v1/environments/{env}/queue-metrics", env="default"),
    asked("GET /api/v1/environments/{environment}/queue-overview", environment="default"),
    asked("GET /api/v1/live"),
    asked("GET /api/v1/me"),
    asked("GET /api/v1/queues/{queue}/messages", queue=QUEUE),
    asked("POST /api/v1/queues/{queue}/messages/cancel", {"ids": [str(uuid4())]}, queue=QUEUE),
    asked("POST /api/v1/queues/{queue}/messages/cancellations", {"filter": {"key": "k"}}, queue=QUEUE),
    asked("GET /api/v1/queues/{queue}/log", queue=QUEUE),
    asked("POST /api/v1/queues/{queue}/log/replays", {"into": QUEUE, "dry_run": True}, queue=QUEUE),
    asked("GET /api/v1/queues/{queue}/messages/find", queue=QUEUE, query="?idempotency_key=k"),
    asked("GET /api/v1/messages/{message_id}"),
    asked("GET /api/v1/messages/{message_id}/why"),
    asked("GET /api/v1/messages/{message_id}/timeline"),
    asked("POST /api/v1/messages/{message_id}/run"),
    asked("POST /api/v1/messages/{message_id}/reschedule", {"delay_ms": 0}),
    asked("POST /api/v1/messages/{message_id}/priority", {"priority": 1}),
    asked("POST /api/v1/messages/{message_id}/cancel"),
    asked("GET /api/v1/operations"),
    asked("GET /api/v1/operations/stats"),
    asked("GET /api/v1/operations/{operation}"),
    asked("POST /api/v1/operations/{operation}/cancel"),
    asked("POST /api/v1/operations/{operation}/retry"),
    asked("GET /api/v1/pipeline"),
    asked("GET /api/v1/pipeline/audit"),
    asked("GET /api/v1/pipeline/metrics", operator=True),
    asked("PUT /api/v1/pipeline/metrics", {"on": True}, operator=True),
    asked("GET /api/v1/spec"),
    asked("GET /api/v1/spec/history"),
    asked("GET /api/v1/spec/history/{revision}", revision="1"),
    asked("GET /api/v1/webhooks"),
    asked("POST /api/v1/spec/plan", {"source": SPEC}),
    asked("GET /api/v1/apps"),
    asked("POST /api/v1/apps/{app}/plan", {"source": _APP}, app="Mine"),
    asked("PUT /api/v1/apps/{app}", {"source": _APP}, app="Mine"),
    asked("POST /api/v1/groups/{group}/members", {"member": 0, "of": 3}, group="g"),
    asked("POST /api/v1/progress", {**_LEASE, "progress": 1}),
    asked("GET /api/v1/messages/{message_id}/outcome"),
    asked("GET /api/v1/messages/{message_id}/outcome/stream"),
    asked("PUT /api/v1/spec", {"source": SPEC}),
    asked("GET /api/v1/tokens"),
    asked("POST /api/v1/tokens", {"name": "t", "role": "read"}),
    asked("POST /api/v1/tokens/{token_id}/rotate", {}),
    asked("DELETE /api/v1/tokens/{token_id}"),
    asked("GET /api/v1/workers"),
    asked("GET /api/v1/workers/metrics"),
    asked("GET /api/v1/workers/{worker_id}/metrics"),
    asked("GET /api/v1/workers/{worker_id}/queues"),
    asked("GET /api/v1/audit-log"),
    asked("GET /api/v1/alerts"),
    asked("GET /api/v1/alerts/{alert_id}"),
    asked("POST /api/v1/alerts/{alert_id}/acknowledge"),
    asked("POST /api/v1/alerts/{alert_id}/resolve"),
    asked("GET /api/v1/alert-metrics"),
    asked("GET /api/v1/annotations"),
    asked("POST /api/v1/annotations", {"text": "v42 out"}),
    asked("DELETE /api/v1/annotations/{annotation_id}"),
    asked("GET /api/v1/marks"),
    asked("GET /api/v1/search", query="?q=orders"),
    asked("GET /api/v1/direct"),
    asked("GET /api/v1/alert-channels"),
    asked(
        "PUT /api/v1/alert-channels/{name}",
        {"kind": "slack", "config": {"url": "https://example.com/x"}},
        name="s",
    ),
    asked("DELETE /api/v1/alert-channels/{name}", name="none"),
    asked("POST /api/v1/alert-channels/{name}/test", name="none"),
    asked("GET /api/v1/alert-notifications"),
    asked("GET /api/v1/alert-rules"),
    asked("POST /api/v1/alert-rules", _RULE),
    asked("GET /api/v1/alert-rules/{rule_id}"),
    asked("PUT /api/v1/alert-rules/{rule_id}", _RULE),
    asked("DELETE /api/v1/alert-rules/{rule_id}"),
    asked("GET /api/v1/alert-silences"),
    asked("POST /api/v1/alert-silences", {"for_ms": 1_000}),
    asked("DELETE /api/v1/alert-silences/{silence_id}"),
    asked("GET /api/v1/channels"),
    asked("PUT /api/v1/channels/{channel_id}", _FRESH, channel_id="Fresh"),
    asked("DELETE /api/v1/channels/{channel_id}", channel_id="none"),
    asked("POST /api/v1/channels/{channel_id}/tokens", channel_id="Fresh"),
    asked("POST /api/v1/channels/{channel_id}/consumers/{consumer_id}/tokens", channel_id="Fresh"),
    asked("GET /api/v1/schedules"),
    asked("POST /api/v1/schedules", {"name": "s", **_HOURLY}),
    asked("GET /api/v1/schedules/{name}", name="Known"),
    asked("PUT /api/v1/schedules/{name}", _HOURLY, name="none"),
    asked("DELETE /api/v1/schedules/{name}", name="none"),
    asked("POST /api/v1/schedules/{name}/pause", name="Known"),
    asked("POST /api/v1/schedules/{name}/resume", name="Known"),
    asked("POST /api/v1/schedules/{name}/run", name="Known"),
    asked("GET /api/v1/disabled-endpoints"),
    asked("POST /api/v1/disabled-endpoints/enable", {"url": "https://example.com/x"}),
    asked("GET /dlq-status"),
    asked("GET /api/v1/dlq/audit"),
    asked("POST /api/v1/dlq/audit", operator=True),
    asked("GET /api/v1/dlq/consumers"),
    asked("GET /api/v1/dlq/letters/{letter_id}", query=f"?queue={QUEUE}"),
    asked("DELETE /api/v1/dlq/letters/{letter_id}", query=f"?queue={QUEUE}"),
    asked("POST /api/v1/dlq/letters/{letter_id}/redrive", query=f"?queue={QUEUE}"),
    asked("GET /api/v1/alert-evaluator"),
    asked("GET /api/v1/dlq/groups"),
    asked("GET /api/v1/dlq/letters", query=f"?queue={QUEUE}"),
    asked("POST /api/v1/dlq/purges", {"filter": {"queue": QUEUE, "reason": "expired"}}),
    asked("POST /api/v1/dlq/redrives", {"filter": {"queue": QUEUE}}),
    asked("GET /api/v1/dlq/tasks"),
    asked("GET /api/v1/dlq/tasks/{task_id}"),
    asked("GET /api/v1/dlq/tasks/{task_id}/samples"),
    asked("POST /api/v1/dlq/tasks/{task_id}/cancel"),
    asked("POST /api/v1/dlq/tasks/{task_id}/pause"),
    asked("POST /api/v1/dlq/tasks/{task_id}/resume"),
    asked("GET /admin/queues"),
    asked("GET /admin/queues/{name}/dlq", name=QUEUE),
    asked("GET /admin/queues/{name}/dlq/{letter_id}", name=QUEUE),
    asked("DELETE /admin/queues/{name}/dlq/{letter_id}", name=QUEUE),
    asked("POST /admin/queues/{name}/dlq/{letter_id}/replay", name=QUEUE),
    asked("POST /channel/{channelId}/publish", {"event": 1}),
    asked("GET /channel/{channelId}/consumer/{consumerId}/dlq"),
    asked("POST /channel/{channelId}/consumer/{consumerId}/dlq"),
    asked("DELETE /channel/{channelId}/consumer/{consumerId}/dlq"),
    asked("GET /channel/{channelId}/consumer/{consumerId}/job/{jobId}"),
    asked("DELETE /channel/{channelId}/consumer/{consumerId}/job/{jobId}"),
    asked("POST /channel/{channelId}/consumer/{consumerId}/job/{jobId}/requeue-dead-job"),
)


async def prepare(client: httpx2.AsyncClient) -> dict[str, str]:
    """Apply the spec; the headers that the channel's own routes want."""
    applied = await client.put("/api/v1/spec", json={"source": SPEC})
    assert applied.status_code == 200, applied.text
    made = await client.put("/api/v1/channels/Events", json=_EVENTS)
    assert made.status_code == 200, made.text
    tokens = {}
    for path, header in (
        ("/api/v1/channels/Events/tokens", "x-broker-channel-token"),
        ("/api/v1/channels/Events/consumers/Mail/tokens", "x-broker-consumer-token"),
    ):
        made = await client.post(path)
        assert made.status_code in (200, 201), made.text
        tokens[header] = made.json()["token"]
    return tokens
