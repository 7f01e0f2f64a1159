"""Annotations, and everything else that is marked on the charts of an environment."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Query, status

from weir.alerts.chart_marks import read_marks
from weir.api.auditing import audit
from weir.api.auth import App, Reader, Writer
from weir.api.routes.history import asked_window, warehouse_of
from weir.api.schemas.annotations import (
    AnnotationBody,
    AnnotationList,
    AnnotationView,
    ChartMarkList,
    ChartMarkView,
)
from weir.api.services import all_or_nothing, present
from weir.model.limits import MAX_NAME_BYTES
from weir.warehouse.reading.periods import Window
from weir.warehouse.reading.warehouse import Warehouse

router = APIRouter(prefix="/api/v1", tags=["history"])


@router.get("/annotations", operation_id="list_annotations")
async def list_annotations(
    access: Reader, services: App, limit: Annotated[int, Query(ge=1, le=1_000)] = 100
) -> AnnotationList:
    """The annotations of the environment, newest first."""
    found = await present(services.annotations, "PostgreSQL").of(access.environment, limit=limit)
    return AnnotationList(items=[AnnotationView(**asdict(one)) for one in found])


@router.post(
    "/annotations",
    operation_id="create_annotation",
    status_code=status.HTTP_201_CREATED,
)
async def create_annotation(body: AnnotationBody, access: Writer, services: App) -> AnnotationView:
    """Note what happened, such as a deploy; every chart of the environment shows it."""
    annotations = present(services.annotations, "PostgreSQL")
    async with all_or_nothing(services):
        made = await annotations.add(access.environment, text=body.text, at_ms=body.at_ms, actor=access.actor)
        await audit(services, access, "annotation.create", made.id, text=made.text)
    return AnnotationView(**asdict(made))


@router.delete(
    "/annotations/{annotation_id}",
    operation_id="delete_annotation",
    status_code=status.HTTP_204_NO_CONTENT,
)
async def delete_annotation(annotation_id: str, access: Writer, services: App) -> None:
    """Take an annotation off the charts."""
    async with all_or_nothing(services):
        await present(services.annotations, "PostgreSQL").delete(access.environment, annotation_id)
        await audit(services, access, "annotation.delete", annotation_id)


@router.get("/marks", operation_id="list_marks")
async def list_marks(
    access: Reader,
    services: App,
    warehouse: Annotated[Warehouse, Depends(warehouse_of)],
    window: Annotated[Window, asked_window("30m")],
    queue: Annotated[
        str | None, Query(max_length=MAX_NAME_BYTES, description="Leave out what concerns other queues.")
    ] = None,
) -> ChartMarkList:
    """What happened in a period, newest first: alerts, annotations, applied specs, pauses and gaps."""
    database = present(services.alerts, "PostgreSQL").database
    found = await read_marks(database, warehouse, access.environment, window, queue=queue)
    return ChartMarkList(items=[ChartMarkView(**asdict(one)) for one in found])
