"""Requests and answers about tokens."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, StrictBool, StrictInt

from weir.api.schemas.shared import Name, Schema
from weir.control.principals import Role
from weir.model.durations import DAY_MS, HOUR_MS
from weir.model.limits import MAX_SPAN_MS


class TokenBody(Schema):
    """A token to create. Names that the scope of the creating token fixes may be left out."""

    name: Name = Field(examples=["checkout service"])
    role: Role = Field(examples=["write"])
    organization: Name | None = Field(
        default=None, description="Only an operator chooses it; for all others it is their own."
    )
    project: Name | None = None
    environment: Name | None = None
    lifetime_ms: Annotated[StrictInt, Field(ge=1, le=MAX_SPAN_MS)] | None = None
    direct: StrictBool = Field(
        default=False,
        description="Make a user of Redis too, for clients in direct mode; for operators.",
    )


class RotateBody(Schema):
    grace_ms: Annotated[StrictInt, Field(ge=0, le=30 * DAY_MS)] = Field(
        default=0, description="How long the old token stays valid.", examples=[HOUR_MS]
    )


class TokenView(BaseModel):
    id: str
    name: str
    role: Role
    organization: str | None = Field(description="null for an operator.")
    project: str | None
    environment: str | None
    created_at_ms: int
    expires_at_ms: int | None
    revoked_at_ms: int | None
    last_used_at_ms: int | None
    replaces: str | None
    direct: bool = Field(description="Whether a user of Redis belongs to it, for direct mode.")


class TokenCreated(TokenView):
    token: str = Field(description="The whole token; it is shown this once.")


class TokenList(BaseModel):
    items: list[TokenView]
