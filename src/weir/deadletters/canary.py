"""The canary: a redrive sends a few letters, waits until each is acked or dead, and stops if too many die."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from weir.broker.broker import Broker
from weir.control.database import Connection, execute, fetch
from weir.deadletters.bulk_actions import BulkAction
from weir.deadletters.dead_letter import DeadLetter, letter_of
from weir.deadletters.queries import DEAD_LETTERS
from weir.model.ids import MessageId
from weir.model.names import QueueRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """The ids of the canaries' letters, by what became of their replays."""

    died: frozenset[str]
    acked: frozenset[str]
    undecided: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryVerdict:
    """Go on (`passed`), stop (`stopped`, with the reason), or look again later (neither)."""

    passed: bool = False
    stopped: str | None = None


def canary_verdict(action: BulkAction, fates: Fates, *, now_ms: int) -> CanaryVerdict:
    """Stop when too many died, pass when the undecided cannot make them too many, else wait."""
    sent = len(fates.died) + len(fates.acked) + len(fates.undecided)
    allowed = math.floor(action.canary_tolerance * sent)
    if len(fates.died) > allowed:
        return CanaryVerdict(
            stopped=f"{len(fates.died)} of {sent} canaries died again; at most {allowed} may"
        )
    if len(fates.died) + len(fates.undecided) <= allowed:
        return CanaryVerdict(passed=True)
    waited_ms = now_ms - (action.canary_since_ms or now_ms)
    if waited_ms >= action.canary_patience_ms:
        return CanaryVerdict(
            stopped=f"{len(fates.undecided)} of {sent} canaries were neither done nor dead "
            f"after {waited_ms // 1000} s; see whether workers run, then resume"
        )
    return CanaryVerdict()


def too_deadly(action: BulkAction) -> str | None:
    """Why a redrive must stop although its canary passed: more replays died than it tolerates."""
    done, died = action.done - action.done_before, action.died_again - action.died_before
    allowed = max(math.floor(action.canary_tolerance * done), len(action.canary_ids))
    if died <= allowed:
        return None
    return f"{died} of {done} replayed letters died again; at most {allowed} may"


async def find_fates(connection: Connection, broker: Broker, action: BulkAction) -> Fates:
    """Find out what became of the canaries, and mark the letters whose replays were acked.

    The broker is asked before the table. A replay that the broker does not hold any more has ended, and if it
    died, the mover stored it before the broker dropped it.
    """
    if action.into is not None:
        return await _find_fates_in(action.environment.queue(action.into), connection, broker, action)
    rows = await fetch(connection, DEAD_LETTERS["select_letters"], ids=list(action.canary_ids))
    letters = [letter_of(row) for row in rows]
    held = await _find_held(broker, letters)
    replays = [letter.replay_id for letter in letters if letter.replay_id]
    died_ids = {str(row["id"]) for row in await fetch(connection, DEAD_LETTERS["which_died"], ids=replays)}
    died = {letter.id for letter in letters if letter.replay_id in died_ids or letter.replay_result == "died"}
    undecided = held - died
    acked = {letter.id for letter in letters} - died - undecided
    await execute(connection, DEAD_LETTERS["mark_results"], ids=sorted(acked))
    return Fates(died=frozenset(died), acked=frozenset(acked), undecided=frozenset(undecided))


async def _find_fates_in(
    queue: QueueRef, connection: Connection, broker: Broker, action: BulkAction
) -> Fates:
    """The same for a replay from a log: its canaries are the messages that it sent into a queue."""
    flags = await broker.holds(queue, [MessageId(one) for one in action.canary_ids])
    held = {one for one, flag in zip(action.canary_ids, flags, strict=True) if flag}
    rows = await fetch(connection, DEAD_LETTERS["which_died"], ids=list(action.canary_ids))
    died = {str(row["id"]) for row in rows}
    undecided = held - died
    acked = {*action.canary_ids} - died - undecided
    return Fates(died=frozenset(died), acked=frozenset(acked), undecided=frozenset(undecided))


async def _find_held(broker: Broker, letters: list[DeadLetter]) -> set[str]:
    by_queue = defaultdict(list)
    for letter in letters:
        by_queue[letter.queue].append(letter)
    held: set[str] = set()
    for queue, members in by_queue.items():
        flags = await broker.holds(queue, [MessageId(member.replay_id or "") for member in members])
        held |= {member.id for member, flag in zip(members, flags, strict=True) if flag}
    return held
