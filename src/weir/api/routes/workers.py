"""The processes that served an environment, and how they are.

A process serves many tenants. A tenant sees the processes that served it, with the figures about their
health. It sees the counts of a process only while that process served no other tenant. An operator sees
every process with all of its figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from weir.api.auth import App, WideAccess, WideReader
from weir.api.records import Shape
from weir.api.routes.history import Format, answers, asked_window, json_response, warehouse_of
from weir.api.schemas.history import (
    SeriesFormat,
    WorkerList,
    WorkerMetrics,
    WorkerMetricsColumns,
    WorkerQueueList,
    iso,
    period_document,
    series_document,
)
from weir.api.services import Services, present
from weir.control.principals import Role
from weir.errors import NotFound
from weir.telemetry.presence import ServingProcess
from weir.warehouse.reading.periods import Window
from weir.warehouse.reading.series import Point
from weir.warehouse.reading.warehouse import Warehouse
from weir.warehouse.reading.workers import OF_TENANTS, QueueLags, WorkerSummary

router = APIRouter(prefix="/api/v1", tags=["history"])
Figures = Mapping[str, float | int | None]


@router.get(
    "/workers",
    operation_id="list_workers",
    responses=answers(WorkerList),
)
async def list_workers(
    access: WideReader,
    services: App,
    warehouse: Annotated[Warehouse, Depends(warehouse_of)],
    window: Annotated[Window, asked_window("5m")],
) -> Response:
    """The processes that served the environment, and how they are.

    Admins also see the host of a process that served no other tenant.
    """
    servers = await _servers(services, access, window)
    shared = {one.worker_id for one in servers or () if one.shared}
    summaries = await warehouse.workers.summaries(window, worker_ids=_ids(servers))
    trusted = access.principal.role.rank >= Role.ADMIN.rank
    workers = [_view(item, shared=item.worker_id in shared, trusted=trusted) for item in summaries]
    return json_response({"period": period_document(window), "workers": workers})


@router.get(
    "/workers/metrics",
    operation_id="show_workers_metrics",
    responses=answers(WorkerMetrics | WorkerMetricsColumns),
)
async def show_workers_metrics(
    access: WideReader,
    services: App,
    warehouse: Annotated[Warehouse, Depends(warehouse_of)],
    window: Annotated[Window, asked_window("30m")],
    form: Format = SeriesFormat.POINTS,
) -> Response:
    """Throughput, lag and pressure by bucket, of the environment's processes together."""
    servers = await _servers(services, access, window)
    return await _series(warehouse, window, servers, worker_id=None, form=form)


@router.get(
    "/workers/{worker_id}/metrics",
    operation_id="show_worker_metrics",
    responses=answers(WorkerMetrics | WorkerMetricsColumns),
)
async def show_worker_metrics(
    worker_id: str,
    access: WideReader,
    services: App,
    warehouse: Annotated[Warehouse, Depends(warehouse_of)],
    window: Annotated[Window, asked_window("30m")],
    form: Format = SeriesFormat.POINTS,
) -> Response:
    """Throughput, lag and pressure of one of the environment's processes, by bucket."""
    chosen = await _find_process(services, warehouse, access, window, worker_id=worker_id)
    return await _series(warehouse, window, [chosen], worker_id=worker_id, form=form)


@router.get(
    "/workers/{worker_id}/queues",
    operation_id="list_worker_queues",
    responses=answers(WorkerQueueList),
)
async def list_worker_queues(
    worker_id: str,
    access: WideReader,
    services: App,
    warehouse: Annotated[Warehouse, Depends(warehouse_of)],
    window: Annotated[Window, asked_window("30m")],
) -> Response:
    """How long messages had waited when one process got them, by queue, the busiest queue first.

    These are the environment's own queues, so they are shown for a shared process too.
    """
    await _find_process(services, warehouse, access, window, worker_id=worker_id)
    lags = await warehouse.workers.queue_lags(window, worker_id=worker_id, environment=access.environment)
    items = [_queue_view(one) for one in lags]
    return json_response({"period": period_document(window), "worker_id": worker_id, "items": items})


async def _servers(services: Services, access: WideAccess, window: Window) -> list[ServingProcess] | None:
    """The processes that the caller may see; None stands for every process."""
    if access.environment is None:
        return None
    found = await present(services.servers, "telemetry").of(access.environment, since_ms=window.start_ms)
    if access.principal.role is Role.OPERATOR:
        # Nothing is hidden from an operator, so no process counts as shared.
        return [replace(one, shared=False) for one in found]
    return found


async def _find_process(
    services: Services, warehouse: Warehouse, access: WideAccess, window: Window, *, worker_id: str
) -> ServingProcess:
    servers = await _servers(services, access, window)
    if servers is None:
        reported = await warehouse.workers.summaries(window, worker_ids=[worker_id])
        servers = [ServingProcess(worker_id=one.worker_id, shared=False) for one in reported]
    for one in servers:
        if one.worker_id == worker_id:
            return one
    where = "this environment" if access.environment else "any environment"
    raise NotFound(f"no process `{worker_id}` served {where} in the period")


def _ids(servers: list[ServingProcess] | None) -> list[str] | None:
    return None if servers is None else [one.worker_id for one in servers]


async def _series(
    warehouse: Warehouse,
    window: Window,
    servers: list[ServingProcess] | None,
    *,
    worker_id: str | None,
    form: SeriesFormat,
) -> Response:
    shared_ids = [one.worker_id for one in servers or () if one.shared]
    points = await warehouse.workers.series(window, worker_ids=_ids(servers), uncounted_ids=shared_ids)
    uncounted = bool(servers) and len(shared_ids) == len(servers or ())
    return json_response(
        {
            "period": period_document(window),
            "resolution": window.resolution.value,
            "bucket_ms": window.step_ms,
            "worker_id": worker_id,
            "shared": bool(shared_ids),
            **series_document(_shape(points, shared=uncounted), form),
        }
    )


def _shape(points: list[Point], *, shared: bool) -> Shape:
    """The shape of a `WorkerPoint`, with a column for each of its values."""
    figures = [visible(point.values, shared=shared) for point in points]
    names = figures[0] if figures else ()
    return {
        "timestamp": [iso(point.time_ms) for point in points],
        "time_ms": [point.time_ms for point in points],
        "kind": [point.kind for point in points],
        "figures": {name: [figure[name] for figure in figures] for name in names},
    }


def _view(item: WorkerSummary, *, shared: bool, trusted: bool) -> dict[str, Any]:
    return {
        "worker_id": item.worker_id,
        "role": item.role,
        "hostname": item.hostname if trusted and not shared else None,
        "pid": item.pid if trusted and not shared else None,
        "health": item.health.value,
        "last_seen": iso(item.last_seen_ms),
        "pool_size": item.pool_size,
        "shared": shared,
        "figures": visible(item.figures, shared=shared),
    }


def visible(figures: Figures, *, shared: bool) -> Figures:
    """The figures, with None for each one that would tell about other tenants."""
    if not shared:
        return figures
    return {name: None if name in OF_TENANTS else value for name, value in figures.items()}


def _queue_view(lags: QueueLags) -> dict[str, Any]:
    queue = lags.queue
    return {
        "organization": queue and queue.organization,
        "project": queue and queue.project,
        "environment": queue and queue.environment,
        "queue": queue and queue.queue,
        "pops": lags.pops,
        "lag_mean_ms": lags.lag_mean_ms,
        "lag_max_ms": lags.lag_max_ms,
        **lags.percentiles_ms,
    }
