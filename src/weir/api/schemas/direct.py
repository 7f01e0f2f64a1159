"""Direct mode: what a client is told."""

from __future__ import annotations

from pydantic import BaseModel, Field


class DirectView(BaseModel):
    organization: str
    project: str
    environment: str
    token_id: str = Field(description="The name of a consumer that gives none.")
    shards: int = Field(description="How many shards Redis has; the names above say which one it is.")
    epoch: str | None = Field(description="Which life of Redis it is; the client finds the same in Redis.")
    redis_user: str | None = Field(
        description="The user of Redis that belongs to this token; null if it was made without."
    )
    max_payload_bytes: int
    max_depth: int = Field(description="Levels of nesting that a JSON payload may have.")
