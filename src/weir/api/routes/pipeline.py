"""The pipeline: how far it is behind, which events are missing, and what its audits found."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from weir.api.auth import App, Caller, Reader, WideReader
from weir.api.schemas.pipeline import (
    DriftingQueueView,
    MetricsAuditView,
    MetricsSwitchBody,
    MetricsSwitchView,
    PipelineAuditView,
    PipelineStatusView,
)
from weir.api.services import present
from weir.control.audit_log import AuditedChange
from weir.control.principals import Role
from weir.errors import InvalidInput
from weir.pipeline.switching import switch_document
from weir.warehouse.drift_words import drift_in_words
from weir.warehouse.reading.audits import NEWEST, PastAudit

MAX_DRIFTING = 100

router = APIRouter(prefix="/api/v1/pipeline", tags=["pipeline"])


@router.get("", operation_id="show_pipeline")
async def show_pipeline(access: Reader, services: App) -> PipelineStatusView:
    """The pipeline from outside: its state, its lag and its gaps."""
    view = await present(services.pipeline, "the pipeline's streams")()
    return PipelineStatusView.model_validate(asdict(view))


@router.get("/metrics", operation_id="show_metrics_switch")
async def show_metrics_switch(caller: Caller, services: App) -> MetricsSwitchView:
    """Whether metrics are off, since when, by whom and why, and the loss so far; for operators."""
    caller.demand(Role.OPERATOR)
    view = await present(services.metrics_switching, "the switch of the metrics").look()
    return MetricsSwitchView.model_validate(switch_document(view))


@router.put("/metrics", operation_id="switch_metrics")
async def switch_metrics(body: MetricsSwitchBody, caller: Caller, services: App) -> MetricsSwitchView:
    """Switch metrics off or on in all shards; for operators. Repeating it changes nothing."""
    caller.demand(Role.OPERATOR)
    reason = body.reason.strip()
    if not body.on and not reason:
        raise InvalidInput("`reason` is missing; say why, it is shown wherever figures are missing")
    # Record the change before it is made, so that no change goes without a record.
    await present(services.audit, "the audit log").record(
        AuditedChange(
            actor=caller.actor,
            action="metrics.on" if body.on else "metrics.off",
            target="metrics",
            organization=None,
            details={"reason": reason},
        )
    )
    switching = present(services.metrics_switching, "the switch of the metrics")
    view = await switching.change(on=body.on, by=caller.actor, reason=reason)
    view.state.require_all()
    return MetricsSwitchView.model_validate(switch_document(view))


@router.get("/audit", operation_id="show_pipeline_audit")
async def show_pipeline_audit(
    access: WideReader,
    services: App,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    before: Annotated[int, Query(ge=1, le=NEWEST)] = NEWEST,
) -> PipelineAuditView:
    """What audits of the metrics found in the queues of an environment, or for an operator in all queues."""
    audits = present(services.warehouse, "ClickHouse").audits
    newest, found, drifting = await asyncio.gather(
        audits.history(access.environment, limit=1),
        audits.history(access.environment, limit=limit + 1, before=before),
        audits.drifting(access.environment, limit=MAX_DRIFTING),
    )
    shown = [_audit(one) for one in found[:limit]]
    return PipelineAuditView(
        latest=_audit(newest[0]) if newest else None,
        drifting=[
            DriftingQueueView(
                **asdict(one.queue),
                drift=one.drift,
                counters=dict(one.counters),
                tier_drift=one.tier_drift,
                live_drift=one.live_drift,
                text=drift_in_words(one.counters, tier_drift=one.tier_drift, live_drift=one.live_drift),
            )
            for one in drifting
        ],
        items=shown,
        next_before=shown[-1].number if len(found) > limit else None,
    )


def _audit(one: PastAudit) -> MetricsAuditView:
    document = asdict(one)
    return MetricsAuditView(started_at_ms=document.pop("started_ms"), **document)
