"""Alerts: their rules, channels, silences and notifications, and why a queue is as it is."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, status

from weir.alerts.alert_channels import channel_of
from weir.alerts.alert_records import AlertState
from weir.alerts.lease import show_lease
from weir.alerts.services import AlertServices
from weir.alerts.situations import parse_recent
from weir.api.auditing import audit
from weir.api.auth import Access, Admin, App, Reader, Writer
from weir.api.revisions import IfMatch, unchanged
from weir.api.schemas.alerts import (
    AlertChannelBody,
    AlertChannelList,
    AlertChannelView,
    AlertDetail,
    AlertList,
    AlertMetricList,
    EvaluatorView,
    ExplanationView,
    NotificationList,
    RuleBody,
    RuleList,
    RuleView,
    SilenceBody,
    SilenceList,
    SilenceView,
    TestFired,
    alert_detail,
    alert_view,
    channel_view,
    evaluator_view,
    explanation_view,
    metric_views,
    rule_view,
    silence_view,
)
from weir.api.services import Services, all_or_nothing, present
from weir.control.principals import Role
from weir.errors import NotFound
from weir.model.limits import MAX_NAME_BYTES

router = APIRouter(prefix="/api/v1", tags=["alerts"])
Recent = Annotated[
    str,
    Query(
        max_length=16,
        examples=["5m", "90s"],
        description="The recent time, `15s` to `15m`. The usual is the time before it, six times as long.",
    ),
]
Limit = Annotated[int, Query(ge=1, le=1_000)]


def _room(services: Services) -> AlertServices:
    return present(services.alerts, "PostgreSQL")


@router.get("/alert-rules", operation_id="list_alert_rules")
async def list_alert_rules(access: Reader, services: App) -> RuleList:
    """The rules of the environment, by name."""
    return RuleList(items=[rule_view(rule) for rule in await _room(services).rules.of(access.environment)])


@router.post(
    "/alert-rules",
    operation_id="create_alert_rule",
    status_code=status.HTTP_201_CREATED,
)
async def create_alert_rule(body: RuleBody, access: Writer, services: App) -> RuleView:
    """Create a rule. The queue and the channels that it names must exist."""
    room, draft = _room(services), body.draft()
    await room.check_references(access.environment, draft)
    async with all_or_nothing(services):
        rule = await room.rules.create(access.environment, draft)
        await audit(services, access, "alert_rule.create", rule.draft.name)
    return rule_view(rule)


@router.get("/alert-rules/{rule_id}", operation_id="show_alert_rule")
async def show_alert_rule(rule_id: str, access: Reader, services: App) -> RuleView:
    return rule_view(await _room(services).rules.find(access.environment, rule_id))


@router.put("/alert-rules/{rule_id}", operation_id="change_alert_rule")
async def change_alert_rule(
    rule_id: str, body: RuleBody, access: Writer, services: App, if_match: IfMatch = None
) -> RuleView:
    """Replace a rule. Its alerts stay open if it still watches the same metric and queue."""
    room, draft = _room(services), body.draft()
    await room.check_references(access.environment, draft)
    async with _unchanged_rule(services, access, rule_id, if_match):
        rule = await room.rules.change(access.environment, rule_id, draft)
        await audit(services, access, "alert_rule.change", rule.draft.name)
    return rule_view(rule)


@router.delete(
    "/alert-rules/{rule_id}",
    operation_id="delete_alert_rule",
    status_code=status.HTTP_204_NO_CONTENT,
)
async def delete_alert_rule(rule_id: str, access: Writer, services: App, if_match: IfMatch = None) -> None:
    """Delete a rule. Its open alerts are resolved, and their channels are told."""
    async with _unchanged_rule(services, access, rule_id, if_match):
        await _room(services).rules.delete(access.environment, rule_id)
        await audit(services, access, "alert_rule.delete", rule_id)


def _unchanged_rule(
    services: Services, access: Access, rule_id: str, if_match: str | None
) -> AbstractAsyncContextManager[None]:
    async def read() -> RuleView:
        return rule_view(await _room(services).rules.find(access.environment, rule_id))

    return unchanged(services, access, if_match, what=f"alert rule `{rule_id}`", read=read)


@router.get("/alert-metrics", operation_id="list_alert_metrics")
async def list_alert_metrics(access: Reader) -> AlertMetricList:
    """The metrics that a rule can watch, with their units."""
    return AlertMetricList(items=metric_views())


@router.get("/alerts", operation_id="list_alerts")
async def list_alerts(
    access: Reader,
    services: App,
    state: Literal["firing", "active", "resolved"] | None = None,
    queue: Annotated[str | None, Query(max_length=MAX_NAME_BYTES)] = None,
    before: UUID | None = None,
    limit: Limit = 100,
) -> AlertList:
    """The alerts of the environment, newest first; `active` is another word for `firing`."""
    alerts = await _room(services).records.of(
        access.environment,
        state=None if state is None else AlertState("firing" if state == "active" else state),
        queue=queue,
        before=None if before is None else str(before),
        limit=limit,
    )
    return AlertList(items=[alert_view(alert) for alert in alerts])


@router.get("/alerts/{alert_id}", operation_id="show_alert")
async def show_alert(alert_id: str, access: Reader, services: App) -> AlertDetail:
    """One alert with its verdict, its evidence and everything that happened to it."""
    records = _room(services).records
    alert = await records.find(access.environment, alert_id)
    return alert_detail(alert, await records.timeline(alert))


@router.post("/alerts/{alert_id}/acknowledge", operation_id="acknowledge_alert")
async def acknowledge_alert(alert_id: str, access: Writer, services: App) -> AlertDetail:
    """Note that somebody looks at the alert."""
    async with all_or_nothing(services):
        await _room(services).records.acknowledge(access.environment, alert_id, actor=access.actor)
        await audit(services, access, "alert.acknowledge", alert_id)
    return await show_alert(alert_id, access, services)


@router.post("/alerts/{alert_id}/resolve", operation_id="resolve_alert")
async def resolve_alert(alert_id: str, access: Writer, services: App) -> AlertDetail:
    """End an alert by hand; if its condition still holds, it fires again after the cooldown."""
    async with all_or_nothing(services):
        await _room(services).records.resolve(access.environment, alert_id, actor=access.actor)
        await audit(services, access, "alert.resolve", alert_id)
    return await show_alert(alert_id, access, services)


@router.get("/alert-channels", operation_id="list_alert_channels")
async def list_alert_channels(access: Reader, services: App) -> AlertChannelList:
    """The channels that alerts are sent to; credentials are not shown."""
    channels = await _room(services).channels.of(access.environment)
    return AlertChannelList(items=[channel_view(channel) for channel in channels])


@router.put("/alert-channels/{name}", operation_id="put_alert_channel")
async def put_alert_channel(
    name: str, body: AlertChannelBody, access: Admin, services: App
) -> AlertChannelView:
    """Create a channel or change it; private addresses are refused unless the operator allows them."""
    room = _room(services)
    channel = channel_of(
        access.environment,
        name=name,
        kind=body.kind,
        config=body.config,
        policy=room.policy,
        allow_apprise=room.allow_apprise,
    )
    async with all_or_nothing(services):
        await room.channels.put(channel)
        await audit(services, access, "alert_channel.put", name)
    return channel_view(channel)


@router.delete(
    "/alert-channels/{name}",
    operation_id="delete_alert_channel",
    status_code=status.HTTP_204_NO_CONTENT,
)
async def delete_alert_channel(name: str, access: Admin, services: App) -> None:
    """Delete a channel; notifications that are still on their way to it fail."""
    async with all_or_nothing(services):
        await _room(services).channels.delete(access.environment, name)
        await audit(services, access, "alert_channel.delete", name)


@router.post(
    "/alert-channels/{name}/test",
    operation_id="test_alert_channel",
    status_code=status.HTTP_202_ACCEPTED,
)
async def test_alert_channel(name: str, access: Writer, services: App) -> TestFired:
    """Send a test notification the whole way that a real one takes."""
    room = _room(services)
    channel = await room.channels.find(access.environment, name)
    async with all_or_nothing(services):
        notification_id = await room.test(channel)
        await audit(services, access, "alert_channel.test", name)
    return TestFired(notification_id=notification_id)


@router.get("/alert-silences", operation_id="list_alert_silences")
async def list_alert_silences(access: Reader, services: App) -> SilenceList:
    """The silences that are not over."""
    silences = await _room(services).silences.of(access.environment)
    return SilenceList(items=[silence_view(silence) for silence in silences])


@router.post(
    "/alert-silences",
    operation_id="create_alert_silence",
    status_code=status.HTTP_201_CREATED,
)
async def create_alert_silence(body: SilenceBody, access: Writer, services: App) -> SilenceView:
    """Send no notifications for a while. Alerts are recorded, and sent if they outlast the silence."""
    async with all_or_nothing(services):
        silence = await _room(services).silences.add(
            access.environment, **body.model_dump(), actor=access.actor
        )
        await audit(services, access, "alert_silence.create", silence.id)
    return silence_view(silence)


@router.delete(
    "/alert-silences/{silence_id}",
    operation_id="end_alert_silence",
    status_code=status.HTTP_204_NO_CONTENT,
)
async def end_alert_silence(silence_id: str, access: Writer, services: App) -> None:
    """End a silence: notifications are sent again at once."""
    async with all_or_nothing(services):
        await _room(services).silences.end(access.environment, silence_id)
        await audit(services, access, "alert_silence.end", silence_id)


@router.get("/alert-notifications", operation_id="list_alert_notifications")
async def list_alert_notifications(
    access: Reader, services: App, before: UUID | None = None, limit: Limit = 100
) -> NotificationList:
    """The notifications of every channel with their attempts, newest first."""
    found = await _room(services).deliveries.of(
        access.environment, before=None if before is None else str(before), limit=limit
    )
    return NotificationList(items=found)


@router.get("/alert-evaluator", operation_id="show_alert_evaluator")
async def show_alert_evaluator(access: Reader, services: App) -> EvaluatorView:
    """When the rules of all tenants were last evaluated, how long it took, and by which process."""
    room = _room(services)
    lease = await show_lease(room.database)
    if lease is None:
        raise NotFound("nothing was ever evaluated; `weir serve` runs the evaluator")
    trusted = access.principal.role.rank >= Role.ADMIN.rank
    return evaluator_view(lease, now_ms=room.clock.now_ms(), trusted=trusted)


@router.get("/queues/{queue}/explain", operation_id="explain_queue")
async def explain_queue(queue: str, access: Reader, services: App, recent: Recent = "5m") -> ExplanationView:
    """Why a queue is as it is: the cause, the evidence, and where it is heading."""
    found = await _room(services).explain(access.environment.queue(queue), recent_ms=parse_recent(recent))
    return explanation_view(found)
