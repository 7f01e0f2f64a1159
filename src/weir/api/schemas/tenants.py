"""Environments and the audit log."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, Field

from weir.api.schemas.shared import Count, Revised, Schema


class EnvironmentBody(Schema):
    concurrency: Count | None = Field(
        default=None, description="Null removes the limit; left out, it stays as it is.", examples=[100]
    )


class EnvironmentView(Revised):
    changed_by: ClassVar[type[BaseModel]] = EnvironmentBody

    organization: str
    project: str
    environment: str
    concurrency: int | None
    created_at_ms: int


class EnvironmentList(BaseModel):
    items: list[EnvironmentView]


class AuditEntry(BaseModel):
    id: str
    organization: str | None
    project: str | None
    environment: str | None
    actor: str
    action: str
    target: str
    details: dict[str, Any]
    at_ms: int


class AuditList(BaseModel):
    items: list[AuditEntry]
