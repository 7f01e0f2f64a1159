"""Alerts as JSON: the shapes of rules, alerts, channels, silences, notifications and explanations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from weir.alerts.alert import Alert
from weir.alerts.alert_channels import AlertChannel
from weir.alerts.alert_metrics import CATALOGUE, Metric, condition_words, spell_value
from weir.alerts.alert_records import TimelineEntry
from weir.alerts.evidence import evidence_lines
from weir.alerts.evidence_table import evidence_table
from weir.alerts.judge import finite
from weir.alerts.rule import (
    MAX_CHANNELS,
    MAX_WINDOW_MS,
    MIN_WINDOW_MS,
    AlertRule,
    RuleDraft,
    draft_of,
)
from weir.alerts.services import Explanation
from weir.alerts.silences import MAX_COMMENT, MAX_MS, Silence
from weir.api.schemas.shared import Name, Revised, Schema
from weir.spec.ir import DEFAULT_ALERT_COOLDOWN_MS, DEFAULT_ALERT_WINDOW_MS

Number = Annotated[StrictFloat | StrictInt, Field(ge=0)]


class RuleBody(Schema):
    """The metric that a rule watches, when it fires, and which channels it tells."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [{"name": "orders back up", "metric": "backlog", "operator": ">", "threshold": 1000}]
        },
    )

    name: Name
    metric: StrictStr = Field(max_length=64, examples=["backlog"])
    operator: StrictStr = Field(max_length=32, examples=[">"])
    threshold: Number
    clear_threshold: Number | None = Field(default=None, description="Hysteresis; the threshold if null.")
    queue: Name | None = Field(default=None, description="null watches every queue, each on its own.")
    window_ms: Annotated[StrictInt, Field(ge=MIN_WINDOW_MS, le=MAX_WINDOW_MS)] = DEFAULT_ALERT_WINDOW_MS
    cooldown_ms: Annotated[StrictInt, Field(ge=0, le=MAX_WINDOW_MS)] = DEFAULT_ALERT_COOLDOWN_MS
    auto_resolve: StrictBool = True
    channels: list[Name] = Field(default=[], max_length=MAX_CHANNELS)
    enabled: StrictBool = True

    def draft(self) -> RuleDraft:
        return draft_of(**{**self.model_dump(), "channels": tuple(self.channels)})


_CONDITION = "When the rule fires, in words."


class AlertMetricView(BaseModel):
    """A metric that a rule can watch."""

    name: str = Field(examples=["latency_p95"])
    words: str = Field(description="As people say it.", examples=["p95 wait"])
    unit: str = Field(examples=["ms"])
    about: str = Field(
        description="queue, workers, pipeline or operations. Only a metric about `queue` takes a queue."
    )
    description: str


class AlertMetricList(BaseModel):
    items: list[AlertMetricView]


class EvidenceRowView(BaseModel):
    what: str = Field(examples=["a handler takes"])
    now: str = Field(examples=["3.5 s"])
    usual: str | None = Field(description="null if it is not known.", examples=["0.2 s"])


class RuleView(Revised):
    changed_by: ClassVar[type[BaseModel]] = RuleBody

    id: str
    name: str
    metric: str
    operator: str
    threshold: float
    clear_threshold: float | None
    queue: str | None
    window_ms: int
    cooldown_ms: int
    auto_resolve: bool
    channels: list[str]
    enabled: bool
    condition: str = Field(description=_CONDITION, examples=["p95 wait over 30 s for 1 minute"])
    origin: Literal["api", "spec"]
    created_at_ms: int
    updated_at_ms: int


class RuleList(BaseModel):
    items: list[RuleView]


class AlertView(BaseModel):
    id: str
    rule_id: str
    rule_name: str
    metric: str
    operator: str
    threshold: float
    queue: str | None
    state: Literal["firing", "resolved"]
    unknown_since_ms: int | None = Field(description="Since when its value is unknown; null if it is known.")
    fired_at_ms: int
    resolved_at_ms: int | None
    value: float | None = Field(description="The newest value; null is infinite or not measured.")
    peak: float | None
    fired_value: float | None = Field(description="The value when it fired; null: infinite or not measured.")
    cause: str = Field(description="Why it fired, as seen at that moment; so are summary and evidence.")
    summary: str
    evidence: list[str]
    evidence_table: list[EvidenceRowView] = Field(description="The evidence of that moment beside the usual.")
    condition: str = Field(description=_CONDITION, examples=["p95 wait over 30 s for 1 minute"])
    metric_words: str = Field(description="The metric as people say it.", examples=["p95 wait"])
    value_text: str = Field(description="The newest value in words.", examples=["42.6 s"])
    fired_value_text: str = Field(description="The value when it fired, in words.")
    verdict: dict[str, Any]
    acknowledged_at_ms: int | None
    acknowledged_by: str | None


class AlertList(BaseModel):
    items: list[AlertView]


class AlertTimelineView(BaseModel):
    at_ms: int
    event: str
    details: dict[str, Any]


class AlertDetail(AlertView):
    timeline: list[AlertTimelineView]


class AlertChannelBody(Schema):
    kind: StrictStr = Field(max_length=32, examples=["slack"])
    config: dict[str, Any] = Field(examples=[{"url": "https://hooks.slack.com/services/…"}])


class AlertChannelView(BaseModel):
    name: str
    kind: str
    config: dict[str, Any] = Field(description="Secrets are masked.")
    disabled_reason: str | None


class AlertChannelList(BaseModel):
    items: list[AlertChannelView]


class TestFired(BaseModel):
    notification_id: str = Field(description="Look it up among the notifications.")


class SilenceBody(Schema):
    for_ms: Annotated[StrictInt, Field(ge=1, le=MAX_MS)]
    rule_name: Name | None = None
    queue: Name | None = None
    comment: Annotated[StrictStr, Field(max_length=MAX_COMMENT)] = ""


class SilenceView(BaseModel):
    id: str
    rule_name: str | None
    queue: str | None
    starts_at_ms: int
    ends_at_ms: int
    comment: str
    created_by: str


class SilenceList(BaseModel):
    items: list[SilenceView]


class NotificationList(BaseModel):
    items: list[dict[str, Any]]


class EvaluatorView(BaseModel):
    """The one process that evaluates the rules of every tenant, as of now."""

    evaluated_at_ms: int | None = Field(description="When the last evaluation ended; null before the first.")
    age_ms: int | None = Field(description="How long ago that was.")
    took_ms: int | None = Field(description="How long it took.")
    holder: str | None = Field(description="Which process has the right to evaluate; only for admins.")
    expires_at_ms: int = Field(description="Until when that process has the right, unless it renews it.")


class ExplanationView(BaseModel):
    queue: str
    cause: str = Field(examples=["limit_reached"])
    summary: str
    evidence: list[str]
    evidence_table: list[EvidenceRowView] = Field(description="The evidence, with now beside the usual.")
    figures: dict[str, Any]
    backed_up: bool = Field(description="Messages wait, and there is a cause for it.")
    recovered_at_ms: int | None = Field(
        description="When a queue that is well now and was backed up in the last half hour recovered."
    )
    recovered: str | None = Field(
        description="The same in words.",
        examples=["recovered 4 min ago, at 2026-01-01 00:10:00 UTC; messages had waited up to 3 min 20 s"],
    )
    also: list[dict[str, Any]] = Field(description="Other causes that hold at the same time.")
    drain_ms: float | None = Field(
        description="Time until the backlog is gone at the rates of now; null if it does not shrink, "
        "or if the rates are not known."
    )
    outlook: str = Field(
        examples=["empty in 32 s at the rates of now: 0/s arrive, 31.2/s leave"],
        description="Where the queue is heading, in one sentence.",
    )
    arriving_per_s: float | None = Field(
        description="Messages that arrive per second now; null if that is not known, "
        "because telemetry has not arrived or is more than 60 s behind."
    )
    leaving_per_s: float | None = Field(
        description="Messages that are done, die or expire per second now; null if that is not known."
    )
    expiring: int | None = Field(
        description="Waiting messages that will expire before their turn comes; null if that is not known."
    )


def rule_view(rule: AlertRule) -> RuleView:
    draft = rule.draft
    return RuleView(
        id=rule.id,
        name=draft.name,
        metric=draft.metric.value,
        operator=draft.operator.value,
        threshold=draft.threshold,
        clear_threshold=draft.clear_threshold,
        queue=draft.queue,
        window_ms=draft.window_ms,
        cooldown_ms=draft.cooldown_ms,
        auto_resolve=draft.auto_resolve,
        channels=list(draft.channels),
        enabled=draft.enabled,
        condition=draft.condition,
        origin=rule.origin.value,
        created_at_ms=rule.created_at_ms,
        updated_at_ms=rule.updated_at_ms,
    )


def metric_views() -> list[AlertMetricView]:
    return [
        AlertMetricView(
            name=metric.value,
            words=about.words,
            unit=about.unit,
            about=about.about.value,
            description=about.doc,
        )
        for metric, about in CATALOGUE.items()
    ]


def table_view(figures: Mapping[str, Any]) -> list[EvidenceRowView]:
    rows = evidence_table(figures)
    return [EvidenceRowView(what=row.what, now=row.now, usual=row.usual) for row in rows]


def alert_view(alert: Alert) -> AlertView:
    return AlertView(**alert_document(alert))


def alert_document(alert: Alert) -> dict[str, Any]:
    rule, verdict = alert.rule, alert.verdict
    metric = Metric(rule["metric"])
    return {
        "id": alert.id,
        "rule_id": alert.rule_id,
        "rule_name": rule["name"],
        "metric": rule["metric"],
        "operator": rule["operator"],
        "threshold": rule["threshold"],
        "queue": alert.queue or None,
        "state": alert.state,
        "unknown_since_ms": alert.unknown_since_ms,
        "fired_at_ms": alert.fired_at_ms,
        "resolved_at_ms": alert.resolved_at_ms,
        "value": alert.value,
        "peak": alert.peak,
        "fired_value": alert.fired_value,
        "cause": alert.cause,
        "summary": verdict.get("summary", ""),
        "evidence": evidence_lines(verdict.get("evidence", {})),
        "evidence_table": table_view(verdict.get("evidence", {})),
        "condition": condition_words(metric, rule["operator"], rule["threshold"], rule["window_ms"]),
        "metric_words": CATALOGUE[metric].words,
        "value_text": spell_value(metric, alert.value),
        "fired_value_text": spell_value(metric, alert.fired_value),
        "verdict": dict(verdict),
        "acknowledged_at_ms": alert.acknowledged_at_ms,
        "acknowledged_by": alert.acknowledged_by,
    }


def alert_detail(alert: Alert, timeline: list[TimelineEntry]) -> AlertDetail:
    lines = [
        AlertTimelineView(at_ms=one.at_ms, event=one.event, details=dict(one.details)) for one in timeline
    ]
    return AlertDetail(**alert_document(alert), timeline=lines)


def channel_view(channel: AlertChannel) -> AlertChannelView:
    return AlertChannelView(
        name=channel.name,
        kind=channel.kind.value,
        config=channel.shown(),
        disabled_reason=channel.disabled_reason,
    )


def silence_view(silence: Silence) -> SilenceView:
    names: Mapping[str, Any] = {name: getattr(silence, name) for name in SilenceView.model_fields}
    return SilenceView(**names)


def evaluator_view(lease: Mapping[str, Any], *, now_ms: int, trusted: bool) -> EvaluatorView:
    evaluated_at_ms = lease["evaluated_at_ms"]
    return EvaluatorView(
        evaluated_at_ms=evaluated_at_ms,
        age_ms=None if evaluated_at_ms is None else max(0, now_ms - evaluated_at_ms),
        took_ms=lease["took_ms"],
        holder=lease["holder"] if trusted else None,
        expires_at_ms=lease["expires_at_ms"],
    )


def explanation_view(found: Explanation) -> ExplanationView:
    verdict, recovery = found.verdict, found.recovery
    document = verdict.document()
    return ExplanationView(
        queue=found.queue.queue,
        cause=verdict.cause.value,
        summary=verdict.summary,
        evidence=evidence_lines(verdict.evidence),
        evidence_table=table_view(verdict.evidence),
        backed_up=found.backed_up,
        recovered_at_ms=None if recovery is None else recovery.since_ms,
        recovered=None if recovery is None else recovery.summary(now_ms=found.at_ms),
        figures=document["evidence"],
        also=document["also"],
        drain_ms=finite(found.outlook.drain_ms),
        outlook=found.outlook.summary,
        arriving_per_s=found.outlook.arriving_per_s,
        leaving_per_s=found.outlook.leaving_per_s,
        expiring=found.outlook.expiring,
    )
