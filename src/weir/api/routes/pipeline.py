"""The pipeline: how far it is behind, and which events are missing."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from weir.api.auth import App, Reader
from weir.api.responses import problems
from weir.api.schemas.pipeline import PipelineStatusView
from weir.api.services import present

router = APIRouter(prefix="/api/v1/pipeline", tags=["pipeline"])


@router.get("", operation_id="show_pipeline", responses=problems())
async def show_pipeline(access: Reader, services: App) -> PipelineStatusView:
    """The pipeline from outside: its state, its lag and its gaps."""
    view = await present(services.pipeline, "the pipeline's streams")()
    return PipelineStatusView.model_validate(asdict(view))
