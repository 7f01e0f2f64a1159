"""Routes for a page that watches an environment: the caller, all queues at a glance, and live changes."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response, StreamingResponse

from weir.api.auth import App, Caller, Reader, until_token_ends
from weir.api.live import LiveQueues
from weir.api.routes.history import answers, asked_window, json_response, warehouse_of
from weir.api.schemas.history import period_document, rank_document
from weir.api.schemas.overview import Me, Overview
from weir.api.schemas.tenants import EnvironmentView
from weir.api.services import present
from weir.warehouse.reading.periods import Window
from weir.warehouse.reading.top import MAX_TOP_QUEUES, By
from weir.warehouse.reading.warehouse import Warehouse

_PREFIX = "/api/v1"
LIVE_PATH = f"{_PREFIX}/live"
router = APIRouter(prefix=_PREFIX, tags=["overview"])


@router.get("/me", operation_id="show_me")
async def show_me(caller: Caller, services: App) -> Me:
    """Who the token belongs to and which environments it reaches."""
    found = await present(services.tenants, "PostgreSQL").visible_to(caller)
    return Me(
        token_id=caller.token_id,
        role=caller.role,
        organization=caller.organization,
        project=caller.project,
        environment=caller.environment,
        environments=[
            EnvironmentView(
                organization=one.ref.organization,
                project=one.ref.project,
                environment=one.ref.environment,
                concurrency=one.concurrency,
                created_at_ms=one.created_at_ms,
            )
            for one in found
        ],
    )


@router.get(
    "/environments/{environment}/queue-overview",
    operation_id="show_queue_overview",
    responses=answers(Overview),
)
async def show_queue_overview(
    environment: str,
    access: Reader,
    warehouse: Annotated[Warehouse, Depends(warehouse_of)],
    window: Annotated[Window, asked_window("30m")],
) -> Response:
    """Every queue that was active in the period: its depth over time and its figures."""
    lines, ranked = await asyncio.gather(
        warehouse.sparklines.of(access.environment, window),
        warehouse.top.of(access.environment, window, by=By.WAIT_P95, limit=MAX_TOP_QUEUES),
    )
    queues = [{**rank_document(totals), "depth": lines.get(totals.queue, [])} for totals in ranked]
    return json_response({"period": period_document(window), "items": queues})


@router.get(
    LIVE_PATH.removeprefix(_PREFIX),
    operation_id="watch_queues",
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "The stream."},
    },
)
async def watch_queues(access: Reader, request: Request) -> Response:
    """Server-sent events: a `snapshot` of all queues, then a `change` whenever some changed.

    Each carries `{"changed": [queue, …], "removed": [name, …]}` with queues as `list_queues` shows them.
    """
    live: LiveQueues = request.app.state.live
    return StreamingResponse(
        until_token_ends(request, await live.open(access.environment)),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
