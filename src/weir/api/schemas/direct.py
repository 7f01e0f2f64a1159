"""Direct mode: what the API tells a client."""

from __future__ import annotations

from pydantic import BaseModel, Field


class DirectView(BaseModel):
    organization: str
    project: str
    environment: str
    token_id: str = Field(description="The name of a consumer that does not give its own.")
    shards: int = Field(description="How many shards there are; the names above determine which one it is.")
    epoch: str | None = Field(description="The epoch of the data in Redis, where the client finds the same.")
    redis_user: str | None = Field(
        description="The user of Redis that belongs to this token; null if the token has none."
    )
    max_payload_bytes: int
    max_depth: int = Field(description="Levels of nesting that a JSON payload may have.")
