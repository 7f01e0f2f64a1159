"""Which messages in the log of a queue are meant: by time, key and CEL; and a request to replay them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from weir.deadletters.counted import CountedBy, check_counted
from weir.deadletters.filters import Predicate, check_boolean, compile_known
from weir.deadletters.rates import NO_LIMITS, SendLimits
from weir.errors import InvalidInput
from weir.model.limits import MAX_TIME_MS
from weir.model.logged import LogAccount, LoggedMessage, LogPlace
from weir.model.message import check_number
from weir.model.names import QueueRef, check_name
from weir.spec.cel import Expression
from weir.spec.evaluation import Record
from weir.spec.types import ANY, INT, STRING, Type, map_of

VARIABLES: Mapping[str, Type] = {
    "payload": ANY,
    "headers": map_of(STRING),
    **dict.fromkeys(("id", "queue", "key", "outcome", "reason"), STRING),
    **dict.fromkeys(
        ("number", "priority", "attempts", "enqueued_at_ms", "ended_at_ms", "payload_bytes"), INT
    ),
}
_WHAT = "a message in a log"


class LogSource(Protocol):
    """Where logs are read; `warehouse.reading.log` implements it."""

    async def read(
        self, queue: QueueRef, *, from_ms: int, to_ms: int, after: LogPlace, key: str | None, limit: int
    ) -> list[LoggedMessage]: ...

    async def account(self, queue: QueueRef, *, from_ms: int, to_ms: int) -> LogAccount: ...

    async def landed_until_ms(self, queue: QueueRef) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """Messages of one log that ended in a span. Every condition that is given must hold."""

    queue: str
    from_ms: int = 0
    to_ms: int = MAX_TIME_MS
    """The end of the span. A replay takes no message that ended after it was asked for, so it ends."""
    key: str | None = None
    expression: str | None = None
    """CEL over `VARIABLES`."""

    def __post_init__(self) -> None:
        for name, at_ms in (("from", self.from_ms), ("to", self.to_ms)):
            check_number(at_ms, what=f"`{name}`", least=0, most=MAX_TIME_MS)
        if self.from_ms >= self.to_ms:
            raise InvalidInput("the span is empty; its end must be later than its beginning")
        if self.key is not None:
            check_name(self.key, what="message key")
        if self.expression is not None:
            compile_known(self.expression, VARIABLES, what=_WHAT)
            check_boolean(self.expression, VARIABLES)

    def predicate(self) -> Predicate[LoggedMessage] | None:
        """The expression as a test; None if there is none."""
        if self.expression is None:
            return None
        expression = compile_known(self.expression, VARIABLES, what=_WHAT)
        return Predicate(expression=expression, record_of=_record_of, name_of=_name)

    def described(self) -> dict[str, Any]:
        """The conditions that are given."""
        asked = {name: value for name, value in asdict(self).items() if value is not None}
        return {name: value for name, value in asked.items() if value not in (0, MAX_TIME_MS)}


def _name(message: LoggedMessage) -> tuple[str, str]:
    return message.life.queue.organization, message.life.message_id


def _record_of(message: LoggedMessage, expression: Expression) -> Record:
    life = message.life
    values: dict[str, Any] = {
        "id": life.message_id,
        "queue": life.queue.queue,
        "key": life.key,
        "outcome": life.outcome.value,
        "reason": None if life.reason is None else life.reason.value,
        "number": message.number,
        "priority": life.priority,
        "attempts": life.attempts,
        "enqueued_at_ms": life.enqueued_at_ms,
        "ended_at_ms": life.ended_at_ms,
        "payload_bytes": life.payload_bytes,
        "headers": dict(message.headers),
    }
    names = expression.variables
    known = {name: value for name, value in values.items() if name in names}
    return message.payload if "payload" in names else None, known


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLogReplay:
    """A request to send messages of a log into a queue, as a bulk action."""

    selection: LogSelection
    into: str
    """The queue that they are sent into; it may be their own."""
    everything: bool = False
    """Must be set if the selection is the whole log."""
    dry_run: bool = False
    limits: SendLimits = NO_LIMITS
    counted: CountedBy | None = None
    """Take the selection of a dry run instead of this one, which names only the queue then."""

    def __post_init__(self) -> None:
        check_counted(self.counted, dry_run=self.dry_run)
        check_name(self.into, what="queue name")
        whole = self.selection == LogSelection(queue=self.selection.queue)
        if whole and not (self.everything or self.dry_run or self.counted):
            raise InvalidInput(
                "this would replay the whole log; name a span, a key or an expression, or say so with "
                "`all: true`"
            )

    def described(self) -> dict[str, Any]:
        """The request as the audit log keeps it."""
        members = {"dry_run": self.dry_run, "all": self.everything, **self.limits.described()}
        given = {name: value for name, value in members.items() if value}
        return {"filter": self.selection.described(), "into": self.into, **given}
