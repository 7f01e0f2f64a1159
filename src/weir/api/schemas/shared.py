"""The parts of the OpenAPI description that several requests and answers share."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, computed_field

from weir.model.limits import MAX_COUNT, MAX_DELAY_MS, MAX_NAME_BYTES, MAX_SPAN_MS


class Schema(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Revised(BaseModel):
    """Something that is changed as a whole. `revision` stands for what is stored of it."""

    changed_by: ClassVar[type[BaseModel]]
    """The body that changes it: its members are what is stored."""

    def stored(self) -> dict[str, Any]:
        """What is stored, by member."""
        known = self.model_dump(mode="json", include=set(self.changed_by.model_fields))
        return {name: known[name] for name in self.changed_by.model_fields}

    @computed_field(description="Sent as `If-Match` with a change, no other change is overwritten.")  # type: ignore[prop-decorator]
    @property
    def revision(self) -> str:
        stored = self.stored()
        members = [_digest([name, stored[name]]) for name in sorted(stored)]
        return f"{_digest(members)[:16]}.{''.join(one[:4] for one in members)}"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class Problem(BaseModel):
    """An RFC 9457 problem. `code` is stable; clients ignore members that they do not know."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:weir:problem:not_found"])
    title: str = Field(examples=["Not found"])
    status: int = Field(ge=400, le=599, examples=[404])
    detail: str = Field(examples=["there is no queue `orders`; define it first"])
    code: str = Field(examples=["not_found"])
    retryable: bool
    instance: str | None = Field(default=None, examples=["urn:uuid:0199a3c2-0000-7000-8000-000000000000"])
    retry_after: int | None = Field(default=None, ge=1)
    errors: list[dict[str, Any]] | None = None


Name = Annotated[StrictStr, Field(min_length=1, max_length=MAX_NAME_BYTES)]
Count = Annotated[StrictInt, Field(ge=1, le=MAX_COUNT)]
Span = Annotated[StrictInt, Field(ge=1, le=MAX_SPAN_MS)]
Delay = Annotated[StrictInt, Field(ge=0, le=MAX_DELAY_MS)]
