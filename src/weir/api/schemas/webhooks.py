"""Webhooks as the process that answers sees them."""

from __future__ import annotations

from pydantic import BaseModel, Field


class WebhookView(BaseModel):
    """A webhook as the process that answers sees it."""

    name: str
    path: str = Field(description="Where to send to: the short address if it is this environment's.")
    queue: str | None = Field(description="Null: its command runs before the answer.")
    scheme: str | None = Field(description="How requests are signed; null: anybody may send.")
    secret_variables: list[str] = Field(
        description="Environment variables that hold its secrets, the current one first."
    )
    unset_variables: list[str] = Field(description="The secret variables that are not set in this process.")
    accepts: bool = Field(description="False: no secret is set, so everything is refused with 401.")


class WebhookList(BaseModel):
    items: list[WebhookView]
