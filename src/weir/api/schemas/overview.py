"""The caller, and all queues of an environment at a glance."""

from __future__ import annotations

from pydantic import BaseModel, Field

from weir.api.schemas.history import Period, QueueRank
from weir.api.schemas.tenants import EnvironmentView
from weir.control.principals import Role


class Me(BaseModel):
    """The token of the caller: its scope, and the environments inside it."""

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
