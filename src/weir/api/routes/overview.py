"""What a page that watches an environment needs: who is looking, all queues at a glance, and what changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from weir.api.auth import Access, App, Caller, Reader
from weir.api.history import Period, QueueRank, period_document, rank_document
from weir.api.responses import problems
from weir.api.routes.history import asked_window, warehouse_of
from weir.api.routes.queues import queue_view
from weir.api.schemas import EnvironmentView
from weir.api.services import Services, present
from weir.control.principals import Role
from weir.errors import WeirError
from weir.warehouse.reading.periods import Window
from weir.warehouse.reading.top import MAX_QUEUES, By
from weir.warehouse.reading.warehouse import Warehouse

router = APIRouter(prefix="/api/v1", tags=["overview"])

LIVE_INTERVAL_S = 1.0
LIVE_MAX_S = 3600.0
"""After this a stream ends and the client connects again, so that a revoked token does not watch for ever."""


class Me(BaseModel):
    """The holder of the token: how far it reaches, and what lies there."""

    token_id: str
    role: Role
    organization: str | None
    project: str | None
    environment: str | None
    environments: list[EnvironmentView]


class QueueGlance(QueueRank):
    depth: list[int | None] = Field(description="The depth over the period, in equal slots.")


class Overview(BaseModel):
    period: Period
    queues: list[QueueGlance]


@router.get("/me", operation_id="show_me", responses=problems())
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
    "/environments/{env}/queue-overview",
    operation_id="show_queue_overview",
    responses={200: {"model": Overview, "description": "The answer."}, **problems()},
)
async def show_queue_overview(
    env: str,
    access: Reader,
    warehouse: Annotated[Warehouse, Depends(warehouse_of)],
    window: Annotated[Window, asked_window("30m")],
) -> Response:
    """Every queue that was active in the period: its depth over time and its figures."""
    lines, ranked = await asyncio.gather(
        warehouse.sparklines.of(access.environment, window),
        warehouse.top.of(access.environment, window, by=By.WAIT_P95, limit=MAX_QUEUES),
    )
    queues = [{**rank_document(totals), "depth": lines.get(totals.queue, [])} for totals in ranked]
    return Response(
        orjson.dumps({"period": period_document(window), "queues": queues}), media_type="application/json"
    )


@router.get(
    "/live",
    operation_id="watch_queues",
    responses={
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "The stream."},
        **problems(),
    },
)
async def watch_queues(access: Reader, services: App) -> Response:
    """Server-sent events: a `snapshot` of all queues, then a `change` whenever some changed.

    Each carries `{"changed": [queue, …], "removed": [name, …]}` with queues as `list_queues` shows them.
    """
    first = await _views(services, access)
    return StreamingResponse(
        _events(services, access, first),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


Views = dict[str, dict[str, Any]]


async def _views(services: Services, access: Access) -> Views:
    states = await services.broker.states(access.environment)
    return {state.queue.queue: queue_view(state).model_dump() for state in states}


async def _events(services: Services, access: Access, known: Views) -> AsyncIterator[bytes]:
    yield _event("snapshot", changed=list(known.values()), removed=[])
    deadline = asyncio.get_running_loop().time() + LIVE_MAX_S
    while not await _stopped(services) and asyncio.get_running_loop().time() < deadline:
        try:
            now = await _views(services, access)
        except WeirError:
            return  # The client sees the end, says that its numbers are old, and connects again.
        changed = [view for name, view in now.items() if known.get(name) != view]
        removed = [name for name in known if name not in now]
        known = now
        # A comment keeps proxies from closing a quiet stream, and shows a gone client.
        yield _event("change", changed=changed, removed=removed) if changed or removed else b": quiet\n\n"


async def _stopped(services: Services) -> bool:
    """Wait for the next round; True if the process shuts down meanwhile."""
    try:
        await asyncio.wait_for(services.stopping.wait(), LIVE_INTERVAL_S)
    except TimeoutError:
        return False
    return True


def _event(name: str, **data: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"
