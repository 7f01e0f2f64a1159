"""Groups of tasks."""

from __future__ import annotations

from pydantic import BaseModel, Field

from weir.api.schemas.shared import Schema
from weir.model.limits import MAX_GROUP


class MemberBody(Schema):
    """A member of a group that is done."""

    member: int = Field(ge=0, lt=MAX_GROUP, description="Its number, from 0.")
    of: int = Field(ge=1, le=MAX_GROUP, description="How many members the group has.", examples=[3])


class MemberDone(BaseModel):
    complete: bool = Field(description="Whether all members are done.")
