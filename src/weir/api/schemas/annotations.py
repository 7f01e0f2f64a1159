"""Annotations and the marks of charts as JSON."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, StrictInt, StrictStr

from weir.alerts.chart_marks import MarkKind
from weir.api.schemas.shared import Schema
from weir.control.annotations import MAX_ANNOTATION
from weir.model.limits import MAX_TIME_MS


class AnnotationBody(Schema):
    text: Annotated[StrictStr, Field(min_length=1, max_length=MAX_ANNOTATION)] = Field(examples=["v42 out"])
    at_ms: Annotated[StrictInt, Field(ge=0, le=MAX_TIME_MS)] | None = Field(
        default=None, description="When it happened; now if it is left out."
    )


class AnnotationView(BaseModel):
    id: str
    text: str
    at_ms: int
    created_by: str
    created_at_ms: int


class AnnotationList(BaseModel):
    items: list[AnnotationView]


class ChartMarkView(BaseModel):
    kind: MarkKind
    at_ms: int
    until_ms: int | None = Field(description="null: it is a moment, or it has not ended.")
    text: str = Field(examples=["v42 out"])
    queue: str | None = Field(description="null: it concerns the whole environment.")


class ChartMarkList(BaseModel):
    items: list[ChartMarkView]
