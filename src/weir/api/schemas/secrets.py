"""Secrets as the API takes them, and what it shows of them: never the value."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, SecretStr, StrictInt

from weir.api.schemas.shared import Schema
from weir.control.secrets import KEEP_OLD_MS, MAX_KEEP_OLD_MS, MAX_SECRET_BYTES, MIN_SECRET_BYTES


class SecretBody(Schema):
    value: SecretStr = Field(
        max_length=MAX_SECRET_BYTES,
        description=f"At least {MIN_SECRET_BYTES} bytes; it is never shown again.",
    )
    keep_old_ms: Annotated[StrictInt, Field(ge=0, le=MAX_KEEP_OLD_MS)] = Field(
        default=KEEP_OLD_MS,
        description="How long the value before holds too, so that the other side has time to change.",
    )


class SecretView(BaseModel):
    """What is shown of a secret."""

    name: str
    set_at_ms: int
    set_by: str
    previous_until_ms: int | None = Field(
        description="Until when the value before holds too; null: only one value holds."
    )


class SecretList(BaseModel):
    items: list[SecretView]
