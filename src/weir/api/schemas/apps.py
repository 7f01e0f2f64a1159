"""Apps: what they declare in their code."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class AppView(BaseModel):
    name: str
    actor: str = Field(description="Who declared it last.")
    declared_at_ms: int
    spec: dict[str, Any] = Field(description="Its queues and schedules, as a spec has them.")


class AppList(BaseModel):
    items: list[AppView]
