"""The canary: a redrive sends a few, waits for what becomes of them, and stops if too many die again."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from weir.broker.broker import Broker
from weir.control.database import Connection, execute, fetch
from weir.deadletters.bulk_actions import BulkAction
from weir.deadletters.dead_letter import SQL, DeadLetter, letter_of
from weir.model.ids import MessageId


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """What became of the canaries so far: letter ids."""

    died: frozenset[str]
    acked: frozenset[str]
    undecided: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryVerdict:
    """Go on (`passed`), stop (`stopped`, with the reason), or look again later (neither)."""

    passed: bool = False
    stopped: str | None = None


def judge(task: BulkAction, fates: Fates, *, now_ms: int) -> CanaryVerdict:
    """Stop as soon as too many died, pass as soon as the undecided cannot change that, else wait."""
    sent = len(fates.died) + len(fates.acked) + len(fates.undecided)
    allowed = math.floor(task.canary_tolerance * sent)
    if len(fates.died) > allowed:
        return CanaryVerdict(
            stopped=f"{len(fates.died)} of {sent} canaries died again; at most {allowed} may"
        )
    if len(fates.died) + len(fates.undecided) <= allowed:
        return CanaryVerdict(passed=True)
    waited_ms = now_ms - (task.canary_since_ms or now_ms)
    if waited_ms >= task.canary_patience_ms:
        return CanaryVerdict(
            stopped=f"{len(fates.undecided)} of {sent} canaries were neither done nor dead "
            f"after {waited_ms // 1000} s; see whether workers run, then resume"
        )
    return CanaryVerdict()


def too_deadly(task: BulkAction) -> str | None:
    """Why a redrive past its canary must stop after all: the deaths went over the tolerated share."""
    done, died = task.done - task.done_before, task.died_again - task.died_before
    allowed = max(math.floor(task.canary_tolerance * done), len(task.canary_ids))
    if died <= allowed:
        return None
    return f"{died} of {done} replayed letters died again; at most {allowed} may"


async def fates_of(connection: Connection, broker: Broker, task: BulkAction) -> Fates:
    """Ask the broker first and the table second: what left the broker dead is in the table by then."""
    rows = await fetch(connection, SQL["select_letters"], ids=list(task.canary_ids))
    letters = [letter_of(row) for row in rows]
    held = await _held(broker, letters)
    replays = [letter.replay_id for letter in letters if letter.replay_id]
    died_ids = {str(row["id"]) for row in await fetch(connection, SQL["which_died"], ids=replays)}
    died = {letter.id for letter in letters if letter.replay_id in died_ids or letter.replay_result == "died"}
    undecided = held - died
    acked = {letter.id for letter in letters} - died - undecided
    await execute(connection, SQL["mark_results"], ids=sorted(acked))
    return Fates(died=frozenset(died), acked=frozenset(acked), undecided=frozenset(undecided))


async def _held(broker: Broker, letters: list[DeadLetter]) -> set[str]:
    by_queue = defaultdict(list)
    for letter in letters:
        by_queue[letter.queue].append(letter)
    held: set[str] = set()
    for queue, members in by_queue.items():
        flags = await broker.holds(queue, [MessageId(member.replay_id or "") for member in members])
        held |= {member.id for member, flag in zip(members, flags, strict=True) if flag}
    return held
