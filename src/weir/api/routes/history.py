"""History: series of queues and environments, and the queues with the most of one figure."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from weir.api.auth import App, Reader
from weir.api.schemas.history import (
    ENVIRONMENT_GAUGES,
    QUEUE_GAUGES,
    EnvironmentMetrics,
    EnvironmentMetricsColumns,
    QueueMetrics,
    QueueMetricsColumns,
    SeriesFormat,
    metrics_document,
    rank_document,
)
from weir.api.services import present
from weir.errors import InvalidInput
from weir.model.limits import MAX_TIME_MS
from weir.warehouse.reading.periods import Window, parse_period, parse_resolution, window_for
from weir.warehouse.reading.top import MAX_TOP_QUEUES, parse_by
from weir.warehouse.reading.warehouse import Warehouse

router = APIRouter(prefix="/api/v1", tags=["history"])

Time = Annotated[str | None, Query(max_length=40, description="RFC 3339 text, or milliseconds.")]
Format = Annotated[
    SeriesFormat,
    Query(alias="format", description="A `timeseries` of points, or `columns` with a list per value."),
]


def answers(model: Any) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model, "description": "The answer."}}


def warehouse_of(services: App) -> Warehouse:
    return present(services.warehouse, "ClickHouse")


def asked_window(default: str) -> Any:
    """A dependency: the window of `period`, or of `from` and `to`, at the asked resolution."""

    def dependency(
        warehouse: Annotated[Warehouse, Depends(warehouse_of)],
        period: Annotated[str | None, Query(max_length=16, examples=["30m", "2h", "24h", "7d"])] = None,
        start: Annotated[Time, Query(alias="from")] = None,
        end: Annotated[Time, Query(alias="to")] = None,
        resolution: Annotated[str | None, Query(max_length=8, examples=["5s", "1m", "1h"])] = None,
    ) -> Window:
        now_ms = warehouse.clock.now_ms()
        end_ms = now_ms if end is None else parse_time(end)
        if start is not None and period is not None:
            raise InvalidInput("`period` and `from` exclude each other; give one of them")
        start_ms = end_ms - parse_period(period or default) if start is None else parse_time(start)
        return window_for(
            start_ms=start_ms,
            end_ms=end_ms,
            now_ms=now_ms,
            resolution=None if resolution is None else parse_resolution(resolution),
            retention_ms=warehouse.retention_ms,
        )

    return Depends(dependency)


def parse_time(text: str) -> int:
    """A moment in milliseconds, from digits or RFC 3339 text; without an offset it is UTC."""
    if text.isascii() and text.isdecimal() and len(text) <= 15:
        time_ms = int(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
            time_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
        except (ValueError, OverflowError):
            raise InvalidInput(f"`{text:.40}` is not a time; expected RFC 3339 or milliseconds") from None
    if not 0 <= time_ms <= MAX_TIME_MS:
        raise InvalidInput(f"`{text:.40}` is out of range; expected a time from 1970 to 2099")
    return time_ms


@router.get(
    "/queues/{queue}/metrics",
    operation_id="show_queue_metrics",
    responses=answers(QueueMetrics | QueueMetricsColumns),
)
async def show_queue_metrics(
    queue: str,
    access: Reader,
    services: App,
    warehouse: Annotated[Warehouse, Depends(warehouse_of)],
    window: Annotated[Window, asked_window("30m")],
    form: Format = SeriesFormat.POINTS,
) -> Response:
    """One queue over time: what was measured, what is carried and what is unknown."""
    ref = access.environment.queue(queue)
    history = await warehouse.history.of_queue(ref, window)
    if not history.heard and not await warehouse.history.has_queue(ref):
        # Raises NotFound unless the queue is defined. A queue that was forgotten keeps its history.
        await services.broker.state(ref)
    return json_response({"queue": ref.queue, **metrics_document(history, gauges=QUEUE_GAUGES, form=form)})


@router.get(
    "/environments/{env}/queue-metrics",
    operation_id="show_environment_metrics",
    responses=answers(EnvironmentMetrics | EnvironmentMetricsColumns),
)
async def show_environment_metrics(
    env: str,
    access: Reader,
    warehouse: Annotated[Warehouse, Depends(warehouse_of)],
    window: Annotated[Window, asked_window("30m")],
    by: Annotated[
        str, Query(max_length=32, description="What the top queues are ranked by.")
    ] = "queue_length",
    top: Annotated[int, Query(ge=1, le=MAX_TOP_QUEUES)] = 10,
    form: Format = SeriesFormat.POINTS,
) -> Response:
    """A whole environment over time, and its queues with the most of one figure."""
    ranking = parse_by(by)
    history, ranked = await asyncio.gather(
        warehouse.history.of_environment(access.environment, window),
        warehouse.top.of(access.environment, window, by=ranking, limit=top),
    )
    return json_response(
        {
            "environment": access.environment.environment,
            **metrics_document(history, gauges=ENVIRONMENT_GAUGES, form=form),
            "top_by": ranking.value,
            "top_queues": [rank_document(totals) for totals in ranked],
        }
    )


def json_response(document: dict[str, Any]) -> Response:
    return Response(orjson.dumps(document), media_type="application/json")
