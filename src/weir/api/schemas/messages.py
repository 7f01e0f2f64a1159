"""The timeline of a message."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class MomentView(BaseModel):
    """One thing that happened to a message."""

    at_ms: int
    what: str
    details: dict[str, Any]


class TimelineView(BaseModel):
    """Everything that is known about a message, oldest first."""

    message_id: str
    queue: str | None
    state: str
    items: list[MomentView]
