"""The caller, and everything about an environment on one page."""

from __future__ import annotations

from pydantic import BaseModel, Field

from weir.api.schemas.history import Period, QueueRank
from weir.api.schemas.tenants import EnvironmentView
from weir.control.principals import Role


class Me(BaseModel):
    """The holder of the token: how far it reaches, and what lies there."""

    token_id: str
    role: Role
    organization: str | None
    project: str | None
    environment: str | None
    environments: list[EnvironmentView]


class QueueGlance(QueueRank):
    depth: list[int | None] = Field(description="The depth over the period, in equal slots.")


class Overview(BaseModel):
    period: Period
    items: list[QueueGlance]
