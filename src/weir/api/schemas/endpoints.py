"""Endpoints that answered 410 and receive nothing."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field


class DisabledEndpoint(BaseModel):
    """An endpoint that answered 410; its queue keeps its messages."""

    url: str
    disabled_at_ms: int
    reason: str


class DisabledEndpoints(BaseModel):
    items: list[DisabledEndpoint]


class EndpointBody(BaseModel):
    url: Annotated[str, Field(min_length=1, max_length=4096, examples=["https://hooks.example.com/in"])]
