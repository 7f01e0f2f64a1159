"""Requests that move or cancel messages where they wait, and their answers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from weir.api.schemas.dead_letters import CountedBody, Rate
from weir.api.schemas.shared import Delay, Name, Schema
from weir.deadletters.message_selection import MessageSelection, NewCancellation
from weir.errors import InvalidInput
from weir.model.ids import MessageId, check_id
from weir.model.inspection import MAX_PAGE, MAX_SEARCH_BYTES, MessageFilter, MessageState
from weir.model.limits import MAX_BATCH, MAX_HEADER_BYTES, MAX_PRIORITY, MAX_TIME_MS

SearchText = Annotated[StrictStr, Field(min_length=1, max_length=MAX_SEARCH_BYTES)]


class RescheduleBody(Schema):
    """When a message becomes available: give one of the two."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"delay_ms": 60_000}]})

    at_ms: Annotated[StrictInt, Field(ge=0, le=MAX_TIME_MS)] | None = None
    delay_ms: Delay | None = Field(default=None, description="From now.")


class PriorityBody(Schema):
    model_config = ConfigDict(json_schema_extra={"examples": [{"priority": 9}]})

    priority: Annotated[StrictInt, Field(ge=0, le=MAX_PRIORITY)] = Field(
        description=f"{MAX_PRIORITY} is served first."
    )


class TouchedView(BaseModel):
    """A message that was moved or cancelled."""

    message_id: str
    queue: str
    result: str = Field(
        description="done; revoked: it was leased, its lease is revoked and its holder is told.",
        examples=["done"],
    )


class HeaderMatch(Schema):
    name: Annotated[StrictStr, Field(min_length=1, max_length=MAX_HEADER_BYTES)]
    value: Annotated[StrictStr, Field(max_length=MAX_HEADER_BYTES)]


class MessageMatch(Schema):
    """Messages of one state; every given condition must match."""

    state: MessageState
    key: Name | None = None
    header: HeaderMatch | None = None
    text: SearchText | None = Field(default=None, description="Text that the payload holds somewhere.")

    @property
    def is_open(self) -> bool:
        """Whether it matches every message of its state."""
        return self.key is None and self.header is None and self.text is None

    def filter(self) -> MessageFilter:
        return MessageFilter(
            key=self.key,
            header=None if self.header is None else (self.header.name, self.header.value),
            text=None if self.text is None else self.text.encode(),
        )


class CancellationFilter(Schema):
    """Messages of a queue; every given condition must match."""

    state: MessageState | None = Field(default=None, description="Null: messages in any state.")
    key: Name | None = None
    header: HeaderMatch | None = None
    text: SearchText | None = Field(default=None, description="Text that the payload holds somewhere.")
    older_than_ms: Annotated[StrictInt, Field(ge=0, le=MAX_TIME_MS)] | None = Field(
        default=None, description="Enqueued at least this long before the request."
    )

    def selection(self, queue: str) -> MessageSelection:
        return MessageSelection(
            queue=queue,
            state=self.state,
            key=self.key,
            header=None if self.header is None else (self.header.name, self.header.value),
            text=self.text,
            older_than_ms=self.older_than_ms,
        )


class CancellationBody(CountedBody):
    """Cancel messages of a queue, as a bulk action."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"filter": {"key": "c1", "older_than_ms": 60_000}, "rate_per_s": 500}]
        }
    )

    filter: CancellationFilter = CancellationFilter()
    all: StrictBool = Field(
        default=False,
        description="Cancel every message of the queue, or of the state; needed without other conditions.",
    )
    dry_run: StrictBool = Field(default=False, description="Only count, and change nothing.")
    rate_per_s: Rate | None = None

    def cancellation(self, queue: str) -> NewCancellation:
        return NewCancellation(
            selection=self.filter.selection(queue),
            everything=self.all,
            dry_run=self.dry_run,
            rate_per_s=self.rate_per_s,
            counted=self.counted("filter", "all"),
        )


class CancelMessagesBody(Schema):
    """Which messages of a queue to cancel: ids, or a filter."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"filter": {"state": "ready", "key": "c1"}, "dry_run": True}]}
    )

    ids: Annotated[list[StrictStr], Field(min_length=1, max_length=MAX_BATCH)] | None = None
    filter: MessageMatch | None = None
    all: StrictBool = Field(
        default=False,
        description="Cancel every message of the filter's state; needed if it has no other condition.",
    )
    dry_run: StrictBool = Field(default=False, description="Change nothing; say what would be cancelled.")
    cursor: Annotated[StrictStr, Field(min_length=1, max_length=2_048)] | None = Field(
        default=None, description="With a filter: `next_cursor` of the answer before."
    )
    limit: Annotated[StrictInt, Field(ge=1, le=MAX_PAGE)] = Field(
        default=MAX_PAGE, description="With a filter: this request cancels at most this many."
    )

    def check(self) -> None:
        """Refuse a request that does not say clearly which messages it means."""
        if (self.ids is None) is (self.filter is None):
            raise InvalidInput("`ids` and `filter` exclude each other; give one of them")
        if self.ids is not None and self.cursor is not None:
            raise InvalidInput("`cursor` belongs to a filter; leave it out with `ids`")
        if self.filter is not None and self.filter.is_open and not (self.all or self.dry_run):
            raise InvalidInput(
                "the filter matches every message of its state; narrow it, or say so with `all: true`"
            )

    def message_ids(self) -> list[MessageId]:
        """The ids in their canonical form, each once."""
        return list(dict.fromkeys(MessageId(check_id(one, what="message")) for one in self.ids or ()))

    def described(self) -> dict[str, Any]:
        """The request as the audit log records it."""
        return {} if self.filter is None else {"filter": self.filter.model_dump(mode="json")}


class CancelResultView(BaseModel):
    message_id: str
    result: str = Field(
        description="done; revoked: it was leased, and its lease is revoked; gone: it is not here. In a dry "
        "run: held (it would be cancelled) or gone.",
        examples=["done"],
    )


class CancelledView(BaseModel):
    """What one request cancelled, or would have cancelled."""

    dry_run: bool
    items: list[CancelResultView]
    cancelled: int = Field(description="How many were cancelled; in a dry run, how many would be.")
    scanned: int = Field(description="How many messages were looked at.")
    next_cursor: str | None = Field(description="With a filter: pass as `cursor` to go on; null at the end.")
