"""How fairly a queue serves its keys."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from weir.api.auth import App, Reader
from weir.api.routes.history import warehouse_of
from weir.api.schemas.fairness import KeyFairnessView, fairness_view
from weir.warehouse.reading.fairness import MAX_KEYS
from weir.warehouse.reading.periods import parse_period

router = APIRouter(prefix="/api/v1", tags=["history"])


@router.get("/queues/{queue}/fairness", operation_id="show_key_fairness")
async def show_key_fairness(
    queue: str,
    access: Reader,
    services: App,
    period: Annotated[str, Query(max_length=16, examples=["1h", "24h", "7d"])] = "1h",
    limit: Annotated[int, Query(ge=1, le=MAX_KEYS)] = 10,
) -> KeyFairnessView:
    """Which keys waited most and took most in the last `period`, and how alike the keys waited."""
    warehouse = warehouse_of(services)
    now_ms = warehouse.clock.now_ms()
    found = await warehouse.fairness.of_queue(
        access.environment.queue(queue), from_ms=now_ms - parse_period(period), to_ms=now_ms, limit=limit
    )
    return fairness_view(queue, found)
