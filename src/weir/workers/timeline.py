"""The timeline of a message in order: receipt, operation, enqueue, attempts with errors, death, redrive.

A push writes nothing for it. The id carries the time when the message was made, workers record attempts in
batches, and the other packages keep the rest anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from weir.broker.broker import Broker
from weir.control.database import Database, Row
from weir.control.scopes import scope_names
from weir.control.sql import load_queries
from weir.errors import NotFound
from weir.lineage.children import NO_RELATIVES, Kinship, Lineage, Relative, lineage_of
from weir.model.ids import MessageId, check_id, id_time_ms
from weir.model.message import DeathReason
from weir.model.names import EnvironmentRef
from weir.model.receipts import receipt_of
from weir.model.trace_context import trace_id_of
from weir.outbound.delivery_log import PostgresDeliveryLog
from weir.workers.journal import ATTEMPTS_KEPT_MS, attempts_of, result_of

SQL = load_queries("weir.workers", "timeline.sql")
# Each queue that is searched costs a call to Redis.
MAX_QUEUES = 500
_UNFINISHED = ("pending", "processing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One event in the life of a message."""

    at_ms: int
    what: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The state and the events of one message."""

    message_id: str
    queue: str | None
    state: str
    """`held` (waiting, running or about to be a dead letter), `done`, `dead`, `redriven`,
    `cancelled` while a worker had it, or `unknown`."""
    moments: tuple[Moment, ...]
    attempts: tuple[Mapping[str, Any], ...] = ()
    """The attempts that workers recorded, oldest first."""
    waits_in: str | None = None
    """The operation that holds it and is not executed yet."""
    has_letter: bool = False
    """Whether it is a dead letter, redriven or not."""
    lineage: Lineage = NO_RELATIVES
    """Its parent and its children."""
    trace_id: str | None = None
    """The trace that it was made in, as its dead letter or its attempts say."""

    @property
    def death_error(self) -> str | None:
        """Why it died last; None if it did not die."""
        for moment in reversed(self.moments):
            if moment.what == "died":
                return str(moment.details.get("error") or moment.details.get("reason"))
        return None


class Timelines:
    """Builds timelines from PostgreSQL and the broker."""

    def __init__(self, database: Database, broker: Broker) -> None:
        self._database = database
        self._broker = broker
        self.log = PostgresDeliveryLog(database)

    async def of(self, scope: EnvironmentRef, message_id: str) -> Timeline:
        """The timeline of one message; NotFound if nothing is known about it here."""
        message_id = check_id(message_id, what="message")
        created_ms = id_time_ms(message_id)
        about = {**scope_names(scope), "message_id": message_id}
        attempts = await attempts_of(self._database, scope, message_id)
        death = await self._database.fetch_one(SQL["death_of_message"], **about)
        operations = await self._database.fetch(SQL["operations_of_message"], created_ms=created_ms, **about)
        origin = await self._database.fetch_one(SQL["replay_of_message"], created_ms=created_ms, **about)
        deliveries = await self.log.of_message(scope, message_id)
        result = await result_of(self._database, scope, message_id)
        lineage = _with_redrives(await lineage_of(self._database, scope, message_id), death, origin)
        rows = [*attempts, *([death] if death else []), *operations, *([origin] if origin else [])]
        queue = rows[0]["queue"] if rows else None
        held_in = await self._find_holder(scope, MessageId(message_id), queue)
        if not rows and held_in is None and lineage == NO_RELATIVES:
            raise NotFound(f"nothing is known about message `{message_id}` here")
        receipt = await self._read_receipt(scope, held_in, MessageId(message_id), attempts)
        # A message in an operation that is not executed yet is not in the queue.
        executed = any(row["status"] == "completed" for row in operations)
        arrived = bool(attempts or death or origin or held_in or executed)
        beginning = [
            *receipt,
            *(_beginning(created_ms, attempts, origin, queue or held_in) if arrived else ()),
        ]
        work = [
            *_unreported(attempts, death),
            *(moment for row in attempts for moment in _attempt(row)),
            *(_delivery(row) for row in deliveries),
            *_result(result),
        ]
        return Timeline(
            message_id=message_id,
            queue=queue or held_in or lineage.queue,
            state=_state(attempts, death, held=held_in is not None),
            moments=_ordered(
                beginning,
                [_operation(row) for row in operations],
                work,
                _death(death, after_ms=_fatal_ms(attempts)),
            ),
            attempts=tuple(attempts),
            waits_in=next((row["id"] for row in operations if row["status"] in _UNFINISHED), None),
            has_letter=death is not None,
            lineage=lineage,
            trace_id=_trace_id(attempts, death),
        )

    async def _find_holder(
        self, scope: EnvironmentRef, message_id: MessageId, queue: str | None
    ) -> str | None:
        """The queue that holds the message now. Searches every queue if none is given."""
        if queue is None and (found := await self._broker.find_message(scope, message_id)) is not None:
            return found.queue
        # `find_message` does not find a message that died just now.
        names = [queue] if queue else [s.queue.queue for s in await self._broker.states(scope)][:MAX_QUEUES]
        for name in names:
            try:
                (held,) = await self._broker.holds(scope.queue(name), [message_id])
            except NotFound:
                continue
            if held:
                return name
        return None

    async def _read_receipt(
        self, scope: EnvironmentRef, held_in: str | None, message_id: MessageId, attempts: list[Row]
    ) -> list[Moment]:
        """When a webhook received it: from its attempts, or from its own headers while it waits."""
        if attempts:
            at_ms, hook = attempts[0]["received_at_ms"], attempts[0]["hook"]
        elif held_in is not None:
            at_ms, hook = receipt_of(await self._broker.peek(scope.queue(held_in), message_id) or {})
        else:
            return []
        return [] if at_ms is None else [Moment(at_ms=at_ms, what="received", details={"hook": hook})]


def _beginning(created_ms: int, attempts: list[Row], origin: Row | None, queue: str | None) -> list[Moment]:
    found = []
    first = attempts[0] if attempts else None
    if origin is not None:
        details = {"redrives": origin["letter_id"]}
        found.append(Moment(at_ms=origin["replayed_at_ms"], what="redriven from", details=details))
    enqueued_ms = first["enqueued_at_ms"] if first is not None else created_ms
    found.append(Moment(at_ms=enqueued_ms, what="enqueued", details={"queue": queue}))
    return found


def _ordered(
    beginning: list[Moment], operations: list[Moment], work: list[Moment], death: list[tuple[int, Moment]]
) -> tuple[Moment, ...]:
    """All events in order of time. Attempts come after the beginning, although the clocks of hosts differ."""
    begun_ms = max((moment.at_ms for moment in beginning), default=0)
    timed = [(moment.at_ms, moment) for moment in (*beginning, *operations)]
    timed += [(max(moment.at_ms, begun_ms), moment) for moment in work]
    timed += [(max(at_ms, begun_ms), moment) for at_ms, moment in death]
    return tuple(moment for _, moment in sorted(timed, key=lambda pair: pair[0]))


def _fatal_ms(attempts: list[Row]) -> int:
    """When the attempt that killed the message ended, by its worker's clock; 0 if none did."""
    return max((row["finished_at_ms"] for row in attempts if row["ending"] == "dead"), default=0)


def _operation(row: Row) -> Moment:
    details = {
        "operation_id": row["id"],
        "status": row["status"],
        "finished_at_ms": row["finished_ms"],
        "retries": row["retry_count"],
        "error": row["error"],
    }
    return Moment(at_ms=row["created_ms"], what=f"operation {row['type']}", details=_known(details))


def _attempt(row: Row) -> list[Moment]:
    about = {"attempt": row["attempt"], "worker": row["worker"]}
    took = {"took_ms": row["finished_at_ms"] - row["started_at_ms"], "error": row["error"] or None}
    return [
        Moment(at_ms=row["started_at_ms"], what="attempt started", details=about),
        Moment(
            at_ms=row["finished_at_ms"], what=f"attempt {row['ending']}", details=_known({**about, **took})
        ),
    ]


def _unreported(attempts: list[Row], death: Row | None) -> list[Moment]:
    """Attempts without a record: their worker was killed or lost its lease.

    Their time was not recorded. The next attempt, or the death, began when the lease lapsed, so its time is
    shown. Consumers over HTTP record no attempts, and old records are deleted; then no attempt is taken as
    missing.
    """
    by_number = {row["attempt"]: row for row in attempts}
    lapsed = death is not None and death["reason"] == DeathReason.LAPSED
    if not (attempts or lapsed) or _reaches_back_too_far(attempts):
        return []
    last = death["attempts"] if death is not None and lapsed else max(by_number)
    found, at_ms = [], 0 if death is None else death["died_at_ms"]
    for number in range(last, 0, -1):
        if number in by_number:
            at_ms = by_number[number]["started_at_ms"]
        else:
            details = {"attempt": number, "error": "nobody reported how it ended"}
            found.append(Moment(at_ms=at_ms, what="attempt lapsed", details=details))
    return found[::-1]


def _reaches_back_too_far(attempts: list[Row]) -> bool:
    """Whether the records of early attempts may have been deleted by now."""
    return any(row["finished_at_ms"] - row["enqueued_at_ms"] > ATTEMPTS_KEPT_MS for row in attempts)


def _delivery(row: Row) -> Moment:
    details = {
        "url": row["url"],
        "status": row["status"],
        "took_ms": row["duration_ms"],
        "error": row["error"],
        "response": row["excerpt"] or None,
    }
    return Moment(at_ms=row["sent_at_ms"], what=f"sent: {row['verdict']}", details=_known(details))


def _result(row: Row | None) -> list[Moment]:
    if row is None:
        return []
    details = {"idempotency_key": row["key"], "result": row["result"]}
    return [Moment(at_ms=row["at_ms"], what="result kept", details=details)]


def _death(row: Row | None, *, after_ms: int) -> list[tuple[int, Moment]]:
    """Death and redrive, each with the time to sort it by.

    The times come from three clocks: the broker's for the death, the worker's for the end of the attempt and
    PostgreSQL's for the redrive. By their clocks alone the death could stand before the attempt that caused
    it.
    """
    if row is None:
        return []
    details = {"reason": row["reason"], "attempts": row["attempts"], "error": row["error"]}
    died_ms = max(row["died_at_ms"], after_ms)
    found = [(died_ms, Moment(at_ms=row["died_at_ms"], what="died", details=_known(details)))]
    if row["replayed_at_ms"] is not None:
        redrive = {"as": row["replay_id"], "result": row["replay_result"]}
        moment = Moment(at_ms=row["replayed_at_ms"], what="redriven", details=_known(redrive))
        found.append((max(row["replayed_at_ms"], died_ms), moment))
    return found


def _with_redrives(recorded: Lineage, death: Row | None, origin: Row | None) -> Lineage:
    """The lineage with the letter that a message replays, and with the replay of its own letter."""
    parent = recorded.parent
    letter_id = death["replay_of"] if death is not None and origin is None else None
    if origin is not None:
        parent = Relative(
            message_id=origin["letter_id"],
            kind=Kinship.REDRIVEN,
            queue=origin["queue"],
            at_ms=origin["replayed_at_ms"],
        )
    elif letter_id is not None:
        parent = Relative(message_id=letter_id, kind=Kinship.REDRIVEN)
    if death is None or death["replay_id"] is None:
        return replace(recorded, parent=parent)
    replay = Relative(
        message_id=death["replay_id"],
        kind=Kinship.REDRIVEN,
        queue=death["queue"],
        at_ms=death["replayed_at_ms"],
    )
    return replace(recorded, parent=parent, children=(replay, *recorded.children))


def _trace_id(attempts: list[Row], death: Row | None) -> str | None:
    if death is not None:
        return trace_id_of(death["envelope"]["headers"])
    return attempts[-1]["trace_id"] if attempts else None


def _state(attempts: list[Row], death: Row | None, *, held: bool) -> str:
    if death is not None:
        return "dead" if death["replayed_at_ms"] is None else "redriven"
    if held:
        return "held"
    if any(row["ending"] == "done" for row in attempts):
        return "done"
    if any(row["ending"] == "cancelled" for row in attempts):
        return "cancelled"
    return "unknown"


def _known(details: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in details.items() if value is not None}
