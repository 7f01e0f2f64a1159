"""The pipeline: how far it is behind, and which events are missing."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from weir.api.auth import App, Caller, Reader
from weir.api.responses import problems
from weir.api.schemas.pipeline import MetricsSwitchBody, MetricsSwitchView, PipelineStatusView
from weir.api.services import present
from weir.control.audit_log import AuditedChange
from weir.control.principals import Role
from weir.errors import InvalidInput
from weir.pipeline.switching import switch_document

router = APIRouter(prefix="/api/v1/pipeline", tags=["pipeline"])


@router.get("", operation_id="show_pipeline", responses=problems())
async def show_pipeline(access: Reader, services: App) -> PipelineStatusView:
    """The pipeline from outside: its state, its lag and its gaps."""
    view = await present(services.pipeline, "the pipeline's streams")()
    return PipelineStatusView.model_validate(asdict(view))


@router.get("/metrics", operation_id="show_metrics_switch", responses=problems())
async def show_metrics_switch(caller: Caller, services: App) -> MetricsSwitchView:
    """Whether metrics are off, since when, by whom and why, and the loss so far; for operators."""
    caller.demand(Role.OPERATOR)
    view = await present(services.metrics_switching, "the switch of the metrics").look()
    return MetricsSwitchView.model_validate(switch_document(view))


@router.put("/metrics", operation_id="switch_metrics", responses=problems())
async def switch_metrics(body: MetricsSwitchBody, caller: Caller, services: App) -> MetricsSwitchView:
    """Switch metrics off or on in all shards; for operators. Repeating it changes nothing."""
    caller.demand(Role.OPERATOR)
    reason = body.reason.strip()
    if not body.on and not reason:
        raise InvalidInput("`reason` is missing; say why, it is shown wherever figures are missing")
    actor = f"token:{caller.token_id}"
    # Before the act, so that none goes without a record.
    await present(services.audit, "the audit log").record(
        AuditedChange(
            actor=actor,
            action="metrics.on" if body.on else "metrics.off",
            target="metrics",
            organization=None,
            details={"reason": reason},
        )
    )
    switching = present(services.metrics_switching, "the switch of the metrics")
    view = await switching.change(on=body.on, by=actor, reason=reason)
    view.state.require_all()
    return MetricsSwitchView.model_validate(switch_document(view))
