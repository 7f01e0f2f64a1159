"""The answer of a search over an environment."""

from __future__ import annotations

from pydantic import BaseModel, Field


class FoundMessageView(BaseModel):
    message_id: str
    queue: str | None
    state: str = Field(examples=["ready"])
    key: str | None


class SearchView(BaseModel):
    queues: list[str] = Field(description="Queues whose name holds the text, at most 20.")
    messages: list[FoundMessageView] = Field(
        description="The message with that id, or messages with that key that wait or are leased; at most 20."
    )
    complete: bool = Field(
        description="False if there was not enough time to look into every queue for the key."
    )
