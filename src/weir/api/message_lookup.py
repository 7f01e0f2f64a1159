"""Finds one message of an environment: in its queue, an operation, the dead letters or among lives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

from weir.api.message_lives import STATES, timeline_of_life, with_lapses
from weir.api.services import Services, present
from weir.broker.broker import Broker
from weir.deadletters.copies import copied_from
from weir.deadletters.lineage import parent_of, replayed_from
from weir.errors import Conflict, NotFound, WarehouseUnavailable, WeirError
from weir.lineage.children import Kinship, Lineage, Relative
from weir.model.ids import MessageId, check_id
from weir.model.inspection import MessageDetail
from weir.model.lives import Life
from weir.model.names import EnvironmentRef, QueueRef
from weir.model.parents import chained_from
from weir.model.shards import shard_of
from weir.model.trace_context import trace_id_of
from weir.telemetry.events import LIFE
from weir.workers.timeline import Timeline

QUEUED = "queued"
LANDING = "landing"
"""Nothing is known of the message, and lives that ended just now have not landed yet."""
_ENDED = {
    "dead": "died",
    "redriven": "died and was redriven as another message",
    "done": "is done",
    "cancelled": "was cancelled",
    "landing": "ended just now or never existed; its life has not landed yet, so ask again in a second",
    "unknown": "ended, but its end is not recorded",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMessage:
    """A message that something is known about."""

    message_id: MessageId
    state: str
    detail: MessageDetail | None
    """None unless it waits in its queue or is leased."""
    timeline: Timeline
    life: Life | None = None
    """None until it ended and its life has landed."""

    @property
    def lineage(self) -> Lineage:
        """Its parent and children. While it waits its headers name the parent, too."""
        known = self.timeline.lineage
        if known.parent is not None or self.detail is None:
            return known
        return replace(known, parent=_parent(self.message_id, self.detail.headers))

    @property
    def trace_id(self) -> str | None:
        """The trace that it was made in."""
        return self.timeline.trace_id if self.detail is None else trace_id_of(self.detail.headers)

    @property
    def queue(self) -> str | None:
        return self.timeline.queue if self.detail is None else self.detail.queue.queue

    @property
    def operation_id(self) -> str | None:
        return self.timeline.waits_in if self.state == QUEUED else None

    @property
    def see(self) -> str | None:
        """The path of the document that says more."""
        if self.operation_id is not None:
            return f"/api/v1/operations/{self.operation_id}"
        if self.timeline.has_letter and self.queue is not None:
            return f"/api/v1/dlq/letters/{self.message_id}?queue={quote(self.queue, safe='')}"
        return None

    def absence(self) -> WeirError:
        """The error for a message that does not wait: where it is, and what to do instead."""
        name = f"message `{self.message_id}`"
        if self.detail is not None:
            return Conflict(f"{name} moved just now; try again")
        if self.state == QUEUED:
            return Conflict(
                f"{name} waits in the operation `{self.operation_id}` and is not in its queue yet; cancel "
                "that operation, or wait until it is executed",
                see=self.see,
            )
        if self.state == LANDING:
            return Conflict(f"{name} {_ENDED[LANDING]}")
        advice = "; redrive its dead letter instead" if self.state == "dead" else ""
        return Conflict(f"{name} {_ENDED[self.state]}, so it does not wait{advice}", see=self.see)


async def look_up(services: Services, environment: EnvironmentRef, message_id: str) -> FoundMessage:
    """Everything about a message; NotFound if nothing is known about it here."""
    wanted = MessageId(check_id(message_id, what="message"))
    detail = await find_detail(services.broker, environment, wanted)
    try:
        timeline = await present(services.timelines, "PostgreSQL").of(environment, wanted)
    except NotFound as unknown:
        if detail is None:
            return await _look_for_life(services, environment, wanted, unknown)
        # The message ended between both looks and left no record. Answer with what the first look saw.
        timeline = Timeline(message_id=wanted, queue=detail.queue.queue, state="held", moments=())
    if detail is None and timeline.state == "held":
        # It may have arrived between both looks.
        detail = await find_detail(services.broker, environment, wanted)
    if detail is not None:
        return FoundMessage(
            message_id=wanted, state=detail.state.value, detail=detail, timeline=timeline, life=None
        )
    life = await _known_life(services, environment, wanted)
    return FoundMessage(
        message_id=wanted,
        state=_state(timeline, life),
        detail=None,
        timeline=timeline if life is None else with_lapses(timeline, life),
        life=life,
    )


async def _look_for_life(
    services: Services, environment: EnvironmentRef, message_id: MessageId, unknown: NotFound
) -> FoundMessage:
    """Look for the life of a message that neither the broker nor PostgreSQL knows.

    The broker wrote the life when the message ended, which was before this look. So once everything that was
    written until now has landed, a message without a life is unknown.
    """
    if services.warehouse is None:
        raise unknown
    lives = services.warehouse.lives
    life = await lives.find(environment, message_id)
    if life is None:
        fresh = await services.warehouse.freshness.of(LIFE.name, anew=True)
        shard = shard_of(environment, shards=services.warehouse.shards)
        if fresh.is_stale(shard):
            raise NotFound(
                f"{unknown.message}; the pipeline is behind, so messages that ended may be missing"
            )
        if shard in fresh.behind:
            nothing = Timeline(message_id=message_id, queue=None, state=LANDING, moments=())
            return FoundMessage(message_id=message_id, state=LANDING, detail=None, timeline=nothing)
        life = await lives.find(environment, message_id)
    if life is None:
        raise unknown
    timeline = timeline_of_life(life)
    return FoundMessage(
        message_id=message_id, state=timeline.state, detail=None, timeline=timeline, life=life
    )


async def _known_life(services: Services, environment: EnvironmentRef, message_id: MessageId) -> Life | None:
    """The life of a message; None also while ClickHouse is away, because PostgreSQL knows the message."""
    if services.warehouse is None:
        return None
    try:
        return await services.warehouse.lives.find(environment, message_id)
    except WarehouseUnavailable:
        return None


async def find_detail(
    broker: Broker, environment: EnvironmentRef, message_id: MessageId
) -> MessageDetail | None:
    """The message as it waits or is leased; None if it does neither here."""
    queue = await broker.find_message(environment, message_id)
    return None if queue is None else await broker.show_message(queue, message_id)


async def find_queue(
    services: Services, environment: EnvironmentRef, message_id: str
) -> tuple[QueueRef, MessageId]:
    """The queue in which a message waits or is leased, and its id; else an error that says where it is."""
    wanted = MessageId(check_id(message_id, what="message"))
    queue = await services.broker.find_message(environment, wanted)
    if queue is None:
        raise (await look_up(services, environment, wanted)).absence()
    return queue, wanted


def _parent(message_id: MessageId, headers: Mapping[str, str]) -> Relative | None:
    """The parent that the headers of a message name."""
    named = {
        Kinship.REDRIVEN: parent_of(message_id, headers),
        Kinship.COPIED: copied_from(message_id, headers),
        Kinship.REPLAYED: replayed_from(message_id, headers),
        Kinship.CHAINED: chained_from(headers),
    }
    found = ((kind, parent_id) for kind, parent_id in named.items() if parent_id is not None)
    return next((Relative(message_id=parent_id, kind=kind) for kind, parent_id in found), None)


def _state(timeline: Timeline, life: Life | None) -> str:
    """The state of a message that neither waits nor is leased."""
    if timeline.state == "unknown" and timeline.waits_in is not None:
        return QUEUED
    if timeline.state == "unknown" and life is not None:
        return STATES[life.outcome]
    # Held, but neither waiting nor leased: it died, and is not a dead letter yet.
    return "dead" if timeline.state == "held" else timeline.state
