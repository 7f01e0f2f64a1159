"""The canary: a redrive sends a few letters, waits until each is acked or dead, and stops if too many die."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from weir.broker.broker import Broker
from weir.control.database import Connection, Database, Row, execute
from weir.control.scopes import scope_of
from weir.deadletters.bulk_actions import BulkAction
from weir.deadletters.queries import DEAD_LETTERS
from weir.model.ids import MessageId
from weir.model.names import QueueRef
from weir.model.wording import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """The ids of the canaries, by what became of their replays."""

    died: frozenset[str]
    acked: frozenset[str]
    undecided: frozenset[str]
    cancelled: frozenset[str] = frozenset()
    """Nobody can tell whether they would have died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryVerdict:
    """Go on (`passed`), stop (`stopped`, with the reason), or look again later (neither)."""

    passed: bool = False
    stopped: str | None = None


def canary_verdict(action: BulkAction, fates: Fates, *, now_ms: int) -> CanaryVerdict:
    """Stop when too many died or were cancelled, pass when enough were acked, else wait."""
    died, cancelled, undecided = len(fates.died), len(fates.cancelled), len(fates.undecided)
    sent = died + cancelled + undecided + len(fates.acked)
    allowed = math.floor(action.canary_tolerance * sent)
    if died > allowed:
        return CanaryVerdict(stopped=f"{died} of {sent} canaries died again; at most {allowed} may")
    if died + cancelled > allowed:
        return CanaryVerdict(
            stopped=f"{cancelled} of {sent} canaries were cancelled, so they prove nothing; "
            "resume to send new ones"
        )
    if died + cancelled + undecided <= allowed:
        return CanaryVerdict(passed=True)
    waited_ms = now_ms - (action.canary_since_ms or now_ms)
    if waited_ms >= action.canary_patience_ms:
        return CanaryVerdict(
            stopped=f"{undecided} of {sent} canaries were neither done nor dead "
            f"after {duration(waited_ms)}; see whether workers run, then resume"
        )
    return CanaryVerdict()


def too_deadly(action: BulkAction) -> str | None:
    """Why a redrive must stop although its canary passed: more replays died than it tolerates."""
    done, died = action.done - action.done_before, action.died_again - action.died_before
    allowed = max(math.floor(action.canary_tolerance * done), len(action.canary_ids))
    if died <= allowed:
        return None
    return f"{died} of {done} replayed letters died again; at most {allowed} may"


async def find_fates(database: Database, broker: Broker, action: BulkAction) -> Fates:
    """Find out what became of the canaries.

    The broker is asked before the table. A replay that the broker does not hold any more has ended, and if it
    died, the mover stored it before the broker dropped it.
    """
    by_queue: defaultdict[QueueRef, dict[str, MessageId]] = defaultdict(dict)
    known_dead: set[str] = set()
    if action.into is not None:
        # The canaries of a replay from a log are the messages that it sent into a queue.
        by_queue[action.environment.queue(action.into)] = {one: MessageId(one) for one in action.canary_ids}
    else:
        for row in await database.fetch(DEAD_LETTERS["replays_of"], ids=list(action.canary_ids)):
            by_queue[_queue_of(row)][str(row["id"])] = MessageId(str(row["replay_id"]))
            if row["replay_result"] == "died":
                known_dead.add(str(row["id"]))
    held: set[str] = set()
    for queue, sent in by_queue.items():
        flags = await broker.holds(queue, list(sent.values()))
        held |= {one for one, flag in zip(sent, flags, strict=True) if flag}
    replays = {one: replay for sent in by_queue.values() for one, replay in sent.items()}
    rows = await database.fetch(DEAD_LETTERS["which_died"], ids=list(replays.values()))
    dead_ids = {str(row["id"]) for row in rows}
    died = known_dead | {one for one, replay in replays.items() if replay in dead_ids}
    ended = [one for one in replays if one not in held | died]
    flags = await broker.were_cancelled(action.environment, [replays[one] for one in ended])
    cancelled = {one for one, flag in zip(ended, flags, strict=True) if flag}
    return Fates(
        died=frozenset(died),
        acked=frozenset(ended) - cancelled,
        undecided=frozenset(held - died),
        cancelled=frozenset(cancelled),
    )


async def mark_acked(connection: Connection, action: BulkAction, fates: Fates) -> None:
    """Mark the letters whose replays were acked; a replay from a log has no letters."""
    if action.into is None and fates.acked:
        await execute(connection, DEAD_LETTERS["mark_results"], ids=sorted(fates.acked))


def _queue_of(row: Row) -> QueueRef:
    return scope_of(row).queue(row["queue"])
