"""The log of a queue: messages that ended, with what they carried, and the request to replay them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from weir.api.schemas.dead_letters import Cel, CountedBody, Moment, SendLimitsBody
from weir.api.schemas.messages import LifeView
from weir.api.schemas.shared import Name, Schema
from weir.deadletters.log_selection import LogSelection, NewLogReplay
from weir.model.limits import MAX_TIME_MS


class LoggedMessageView(BaseModel):
    """A message in the log of its queue."""

    id: str
    number: int = Field(
        description="Its place among all messages that ended in the queue. While the queue keeps a log no "
        "number is missing, unless a gap is recorded."
    )
    payload: Any = Field(description="The payload if it is JSON, else null; see payload_base64.")
    payload_base64: str | None = Field(description="The payload if it is not JSON.")
    headers: dict[str, str]
    idempotency_key: str | None
    left_out: bool = Field(
        description="Payload and headers are not in the log, because the call that ended the message ended "
        "more than 16 MiB at once."
    )
    kept_until_ms: int = Field(description="When the log forgets it.")
    life: LifeView


class LogGapView(BaseModel):
    """A span in which messages may be missing in the log."""

    from_ms: int
    to_ms: int
    kind: Literal["dropped", "switched_off", "unreadable"]
    reason: str


class LogPageView(BaseModel):
    """Messages in the log of a queue, in the order of their ends."""

    queue: str
    log_ms: int | None = Field(
        description="How long the queue keeps messages that end now; null if it keeps no log."
    )
    items: list[LoggedMessageView]
    scanned: int = Field(description="How many messages were looked at; `where` may leave some out.")
    unanswered: int = Field(description="How many messages `where` had no answer for; they are left out.")
    next_cursor: str | None = Field(description="Where to go on; null at the end.")
    complete_until_ms: int = Field(description="Messages that ended later may not have landed yet.")
    gaps: list[LogGapView]


class LogFilter(Schema):
    """Messages in the log of a queue; every given condition must hold."""

    from_ms: Moment = Field(default=0, description="Ended at or after this.")
    to_ms: Moment = Field(
        default=MAX_TIME_MS, description="Ended before this; at most the time of the request."
    )
    key: Name | None = None
    expression: Cel | None = Field(
        default=None,
        description="CEL over a message.",
        examples=["outcome == 'dead' && payload.amount > 100"],
    )

    def selection(self, queue: str) -> LogSelection:
        return LogSelection(queue=queue, **self.model_dump())


class LogReplayBody(SendLimitsBody, CountedBody):
    """Send messages of a log into a queue, as a bulk action."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"into": "orders-again", "filter": {"key": "c1"}, "canary": 10, "rate_per_s": 100}]
        }
    )

    into: Name = Field(description="The queue that the messages are sent into; it may be their own.")
    filter: LogFilter = LogFilter()
    all: StrictBool = Field(default=False, description="Replay the whole log; needed without a filter.")
    dry_run: StrictBool = Field(default=False, description="Only count, and change nothing.")

    def replay(self, queue: str) -> NewLogReplay:
        return NewLogReplay(
            selection=self.filter.selection(queue),
            into=self.into,
            everything=self.all,
            dry_run=self.dry_run,
            limits=self.limits(),
            counted=self.counted("filter", "all"),
        )
