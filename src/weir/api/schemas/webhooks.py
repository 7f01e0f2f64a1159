"""Webhooks as the process that answers sees them."""

from __future__ import annotations

from pydantic import BaseModel, Field


class WebhookView(BaseModel):
    """A webhook as the process that answers sees it."""

    name: str
    path: str = Field(description="Where to send to: the short address if it is this environment's.")
    queue: str | None = Field(description="Null: its command runs before the answer.")
    scheme: str | None = Field(description="How requests are signed; null: anybody may send.")
    secrets: list[str] = Field(description="Names of the secrets of the environment that verify it.")
    missing_secrets: list[str] = Field(description="Those that the environment does not have.")
    accepts: bool = Field(description="False: it has none of them, so everything is refused with 401.")


class WebhookList(BaseModel):
    items: list[WebhookView]
