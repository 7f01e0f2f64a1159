"""Which messages of a queue a cancellation is about: messages of some states that match a filter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from weir.deadletters.counted import CountedBy, check_counted
from weir.deadletters.rates import check_rate
from weir.errors import InvalidInput
from weir.model.inspection import MessageFilter, MessageState, check_filter
from weir.model.limits import MAX_TIME_MS
from weir.model.message import check_number

WALK = (
    MessageState.SCHEDULED,
    MessageState.BLOCKED,
    MessageState.RETRYING,
    MessageState.READY,
    MessageState.LEASED,
    # Once more: leases may have ended while the states before were walked.
    MessageState.RETRYING,
    MessageState.READY,
)
"""The order in which states are walked: a message that moves on gets into a state that comes later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSelection:
    """Messages of one queue. Every condition that is given must hold."""

    queue: str
    state: MessageState | None = None
    """None: any state."""
    key: str | None = None
    header: tuple[str, str] | None = None
    text: str | None = None
    older_than_ms: int | None = None
    """The least time since the message was enqueued, when the cancellation was asked for."""
    enqueued_to_ms: int = MAX_TIME_MS
    """Set when the cancellation begins: it takes nothing that was enqueued later, so it comes to an end."""

    def __post_init__(self) -> None:
        check_filter(self.filter)
        if self.older_than_ms is not None:
            check_number(self.older_than_ms, what="`older_than_ms`", least=0, most=MAX_TIME_MS)

    @property
    def is_open(self) -> bool:
        """Whether every message of the queue, or of the state, is meant."""
        return all(one is None for one in (self.key, self.header, self.text, self.older_than_ms))

    @property
    def filter(self) -> MessageFilter:
        text = None if self.text is None else self.text.encode()
        return MessageFilter(key=self.key, header=self.header, text=text)

    def walk_keys(self) -> list[int]:
        """The positions in `WALK` of the states to walk."""
        return list(range(len(WALK))) if self.state is None else [WALK.index(self.state)]

    def described(self) -> dict[str, Any]:
        """The conditions that are given."""
        return {
            name: value
            for name, value in asdict(self).items()
            if value is not None and name != "enqueued_to_ms"
        }


def selection_of(stored: Mapping[str, Any]) -> MessageSelection:
    """The selection that a row holds."""
    header, state = stored["header"], stored["state"]
    return MessageSelection(
        **{
            **stored,
            "header": None if header is None else (header[0], header[1]),
            "state": None if state is None else MessageState(state),
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCancellation:
    """A request to cancel messages as a bulk action."""

    selection: MessageSelection
    everything: bool = False
    """Must be set if the selection is open."""
    dry_run: bool = False
    rate_per_s: float | None = None
    counted: CountedBy | None = None
    """Take the selection of a dry run instead of this one, which names only the queue then."""

    def __post_init__(self) -> None:
        check_rate(self.rate_per_s)
        check_counted(self.counted, dry_run=self.dry_run)
        if self.selection.is_open and not (self.everything or self.dry_run or self.counted):
            raise InvalidInput(
                "the filter matches every message of the queue or of its state; narrow it, or say so with "
                "`all: true`"
            )

    def described(self) -> dict[str, Any]:
        """The request as the audit log keeps it."""
        members = {"dry_run": self.dry_run, "all": self.everything, "rate_per_s": self.rate_per_s}
        given = {name: value for name, value in members.items() if value}
        return {"filter": self.selection.described(), **given}
