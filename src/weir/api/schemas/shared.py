"""The parts of the OpenAPI description that several requests and answers share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from weir.model.limits import MAX_COUNT, MAX_DELAY_MS, MAX_NAME_BYTES, MAX_SPAN_MS


class Schema(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


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
