"""Queued operations: statistics, lists, cancelling and retrying."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from weir.admission.kinds import OperationType
from weir.api.auditing import audit
from weir.api.auth import App, Reader, Writer
from weir.api.schemas.operations import (
    FullPartition,
    OperationList,
    OperationStat,
    OperationStats,
    OperationView,
    SystemHealth,
)
from weir.api.services import Services, all_or_nothing, present
from weir.exchange.service import OperationService
from weir.model.holders import HOLDER
from weir.model.limits import MAX_NAME_BYTES
from weir.operations.model import OperationStatus
from weir.operations.store import MAX_PAGE

router = APIRouter(prefix="/api/v1/operations", tags=["operations"])


@router.get("/stats", operation_id="operation_stats")
async def show_operation_stats(access: Reader, services: App) -> OperationStats:
    """The queued operations of the environment by kind, and the pressure on this process."""
    service = _service(services)
    rows = await service.store.stats(access.environment)
    fullest = await service.store.fullest_partitions(access.environment)
    return OperationStats(
        stats=[
            OperationStat(
                **{name: row[name] for name in ("priority", "status", "count", "oldest_ms", "newest_ms")},
                operation_type=row["type"],
                avg_latency_seconds=row["avg_latency_ms"] / 1000,
            )
            for row in rows
        ],
        fullest_partitions=[FullPartition(**row) for row in fullest],
        system_health=_health(services, service),
    )


@router.get("", operation_id="list_operations")
async def list_operations(
    access: Reader,
    services: App,
    status: OperationStatus | None = None,
    queue: Annotated[str | None, Query(min_length=1, max_length=MAX_NAME_BYTES)] = None,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> OperationList:
    """Queued operations of the environment, newest first."""
    page = await _service(services).store.page(
        access.environment, status=status, queue=queue, before=before, limit=limit
    )
    return OperationList(
        operations=[operation_view(row) for row in page.operations], next_before=page.next_before
    )


@router.get("/{operation}", operation_id="show_operation")
async def show_operation(operation: str, access: Reader, services: App) -> OperationView:
    """One operation: where it stands, or what became of it."""
    service = _service(services)
    row = await service.store.read(access.environment, operation)
    view = operation_view(row)
    if view.queue_position is not None:
        wait_ms = service.sampler.rate.wait_ms(view.queue_position)
        return view.model_copy(update={"estimated_wait_ms": wait_ms})
    return view


@router.post("/{operation}/cancel", operation_id="cancel_operation")
async def cancel_operation(operation: str, access: Writer, services: App) -> OperationView:
    """Cancel an operation that is not running yet."""
    store = _service(services).store
    async with all_or_nothing(services):
        row = await store.cancel(access.environment, operation)
        await audit(services, access, "operation.cancel", row["id"], queue=row["queue"])
    # Not before: if the commit failed, messages would overtake an operation that still waits.
    await store.open_gate(access.environment, row)
    return operation_view(row)


@router.post("/{operation}/retry", operation_id="retry_operation")
async def retry_operation(operation: str, access: Writer, services: App) -> OperationView:
    """Put a failed operation back, behind what is queued now."""
    service = _service(services)
    async with all_or_nothing(services):
        row = await service.store.retry(access.environment, operation)
        await audit(services, access, "operation.retry", row["id"], queue=row["queue"])
    service.processor.wake()
    return operation_view(row)


def _service(services: Services) -> OperationService:
    return present(services.operations, "the operation queue")


def _health(services: Services, service: OperationService) -> SystemHealth:
    admission = service.admission
    pressure = admission.pressure
    return SystemHealth(
        pool_utilization=round(pressure.utilization, 4),
        pool_waiting=sum(state().waiting for state in services.pools.values()),
        in_flight=pressure.in_flight,
        limit=pressure.limit,
        event_loop_lag_ms=round(pressure.lag_ms, 2),
        queue_depth=pressure.depth,
        drain_per_second=round(service.sampler.rate.per_s, 1),
        decision=admission.peek(OperationType.PUSH, HOLDER.get()).value,
    )


def operation_view(row: dict[str, Any]) -> OperationView:
    same = (
        "id", "status", "priority", "queue", "partition", "messages", "size_bytes", "created_ms",
        "timeout_ms", "retry_count", "max_retries", "result",
    )  # fmt: skip
    return OperationView(
        **{name: row[name] for name in same},
        operation_type=row["type"],
        processing_started_ms=row["started_ms"],
        processed_ms=row["finished_ms"],
        claimed_by_worker=row["claimed_by"],
        error_message=row["error"],
        last_error_at_ms=row["last_error_ms"],
        latency_seconds=row["latency_ms"] / 1000,
        queue_position=row.get("queue_position"),
    )
