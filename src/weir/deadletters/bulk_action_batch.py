"""One batch of a bulk action: reads a window of letters, and sends, deletes or counts the ones that match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from weir.broker.broker import Broker
from weir.control.database import Connection, Row, fetch
from weir.control.queue_definitions import QueueDefinitions
from weir.control.sql import NamedQuery
from weir.deadletters.bulk_actions import MAX_SAMPLES, NIL, BulkAction, BulkActionKind, CanaryState
from weir.deadletters.dead_letter import DeadLetter, letter_of, lock_letters
from weir.deadletters.filters import compile_known, predicate, variables_of
from weir.deadletters.patch import Patch, compile_patch
from weir.deadletters.queries import DEAD_LETTERS
from weir.deadletters.replay import Replays, delete, send_replays, unsendable
from weir.deadletters.summary import count_gone
from weir.errors import InvalidInput
from weir.model.limits import MAX_BATCH, MAX_HEADER_BYTES
from weir.model.names import QueueRef

FULL_DELAY_MS = 1_000
"""When to try again if the queue is full."""
PACE_MS = 500
"""An action with a rate does about one batch in this time, with as many letters as the rate allows in it."""
DELETE_BATCH = 1_000
"""Letters per transaction of a purge. Their groups and consumers are locked until it ends."""
COUNT_BATCH = 5_000
"""Letters per transaction of a dry run, which locks nothing and reads no payloads."""
LARGE_ENVELOPE = MAX_HEADER_BYTES - 4_096
"""A replay adds headers, so a larger envelope may get over the limit. A dry run checks only such letters."""

WINDOWS = (DEAD_LETTERS["window_by_consumer"], DEAD_LETTERS["window_by_group"])
PURGES = (DEAD_LETTERS["purge_by_consumer"], DEAD_LETTERS["purge_by_group"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The result of a batch: its counts and where it stopped."""

    scanned: int = 0
    matched: int = 0
    done: int = 0
    skipped: int = 0
    replayed: tuple[str, ...] = ()
    samples: tuple[str, ...] = ()
    after_enqueued_at_ms: int = -1
    after_id: str = NIL
    key_done: bool = False
    """The walk key has no more letters, or messages."""
    cursor: str | None = None
    """Where a cancellation goes on within its state, or a replay within its log."""
    delay_ms: int = 0
    note: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """The rows of a window that are meant, and how many the expression had no answer for."""

    rows: list[Row]
    unanswered: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The stores and the time that a batch works with."""

    connection: Connection
    broker: Broker
    definitions: QueueDefinitions
    now_ms: int


async def do_batch(work: Work, action: BulkAction) -> Batch:
    """Do the next batch of the action's current walk key, in the transaction of `work`."""
    if action.kind is BulkActionKind.PURGE and not action.dry_run and action.filter.expression is None:
        return await _purge_by_fields(work, action)
    window = await _fetch_next(work.connection, action, WINDOWS[action.by_group], limit=_window_size(action))
    if not window:
        return Batch(key_done=True)
    meant = await _pick(work.connection, action, window)
    taken = meant.rows[: batch_limit(action)]
    # The cursor moves past the whole window, unless the next batch must take the rest of it.
    last = window[-1] if len(taken) == len(meant.rows) else taken[-1]
    batch = _reached(window, last, matched=len(taken), samples=taken)
    if last is window[-1]:
        batch = replace(batch, skipped=meant.unanswered, problem=meant.problem)
    if not taken:
        return batch
    if action.dry_run:
        return await _count_unsendable(work, action, taken, batch)
    if action.kind is BulkActionKind.PURGE:
        done = await delete(work.connection, [row["id"] for row in taken], now_ms=work.now_ms)
        return replace(batch, done=done, delay_ms=pause_ms(action, done))
    return await _redrive(work, action, window, taken, batch)


async def _purge_by_fields(work: Work, action: BulkAction) -> Batch:
    """Purge with one statement, since no expression has to see the letters."""
    rows = await _fetch_next(work.connection, action, PURGES[action.by_group], limit=batch_limit(action))
    if not rows:
        return Batch(key_done=True)
    # A window without a letter to delete is one row without a group.
    gone = [row for row in rows if row["letters"]]
    done = await count_gone(work.connection, gone, now_ms=work.now_ms)
    return Batch(
        scanned=rows[0]["scanned"],
        matched=rows[0]["matched"],
        done=done,
        after_enqueued_at_ms=rows[0]["position_ms"],
        after_id=str(rows[0]["position_id"]),
        delay_ms=pause_ms(action, done),
    )


async def _fetch_next(
    connection: Connection, action: BulkAction, query: NamedQuery, *, limit: int
) -> list[Row]:
    """Run a query over the next letters of the action's walk key."""
    return await fetch(
        connection,
        query,
        walk_key=action.walk_keys[action.walked],
        after_ms=action.after_enqueued_at_ms,
        after_id=action.after_id,
        high_water=action.high_water,
        retried_to=action.retried_to,
        action=action.id,
        exhausted_only=action.kind is BulkActionKind.PURGE and not action.filter.include_unexhausted,
        limit=limit,
        **action.filter.conditions(),
    )


def _window_size(action: BulkAction) -> int:
    if action.filter.expression is not None or action.patch is not None:
        return MAX_BATCH
    if action.dry_run:
        return COUNT_BATCH
    return DELETE_BATCH if action.kind is BulkActionKind.PURGE else MAX_BATCH


async def _pick(connection: Connection, action: BulkAction, window: Sequence[Row]) -> Meant:
    admitted = [row for row in window if row["admitted"]]
    if action.filter.expression is None or not admitted:
        return Meant(rows=admitted)
    return await _pick_by_expression(connection, action.filter.expression, admitted)


async def _pick_by_expression(connection: Connection, expression: str, rows: Sequence[Row]) -> Meant:
    """Evaluate the expression on whole letters; a letter without an answer is not meant, and is counted."""
    holds = predicate(compile_known(expression), variables_of)
    whole = await fetch(connection, DEAD_LETTERS["select_letters"], ids=[row["id"] for row in rows])
    letters = {row["id"]: letter_of(row) for row in whole}
    meant, unanswered, problem = [], 0, None
    for row in rows:
        try:
            if row["id"] in letters and holds(letters[row["id"]]):
                meant.append(row)
        except InvalidInput as error:
            unanswered, problem = unanswered + 1, error.message
    return Meant(rows=meant, unanswered=unanswered, problem=problem)


async def _count_unsendable(work: Work, action: BulkAction, taken: Sequence[Row], batch: Batch) -> Batch:
    """Count the letters that a redrive would skip: the patch breaks them, or no queue would take them."""
    doubtful = [row for row in taken if action.patch is not None or row["envelope_bytes"] > LARGE_ENVELOPE]
    if action.kind is BulkActionKind.PURGE or not doubtful:
        return batch
    whole = await fetch(work.connection, DEAD_LETTERS["select_letters"], ids=[row["id"] for row in doubtful])
    letters = [letter_of(row) for row in whole]
    patch = None if action.patch is None else await _compile(work, action.patch, letters[0].queue)
    skipped = unsendable(letters, action_id=action.id, patch=patch)
    return replace(
        batch,
        skipped=batch.skipped + len(skipped),
        problem=next(iter(skipped.values()), batch.problem),
    )


async def _redrive(
    work: Work, action: BulkAction, window: Sequence[Row], taken: Sequence[Row], batch: Batch
) -> Batch:
    letters = await lock_letters(work.connection, [row["id"] for row in taken])
    if not letters:
        return batch
    patch = None if action.patch is None else await _compile(work, action.patch, letters[0].queue)
    replays = await send_replays(
        work.connection, work.broker, letters, now_ms=work.now_ms, action_id=action.id, patch=patch
    )
    batch = replace(
        batch,
        done=len(replays.replayed),
        skipped=batch.skipped + len(replays.skipped),
        replayed=tuple(replays.replayed),
        delay_ms=pause_ms(action, len(replays.replayed)),
        problem=next(iter(replays.skipped.values()), batch.problem),
    )
    return _until_full(action, window, letters, replays, batch) if replays.full else batch


def _until_full(
    action: BulkAction, window: Sequence[Row], letters: Sequence[DeadLetter], replays: Replays, batch: Batch
) -> Batch:
    """The batch up to the last letter that was sent or skipped before the queue was full, and then a pause.

    The cursor must not pass a letter that found no room, or letters after it would overtake it.
    """
    settled = replays.replayed.keys() | replays.skipped.keys()
    handled = [letter.id for letter in takewhile(lambda letter: letter.id in settled, letters)]
    reached = Batch(after_enqueued_at_ms=action.after_enqueued_at_ms, after_id=action.after_id)
    if handled:
        last = next(row for row in window if str(row["id"]) == handled[-1])
        reached = _reached(window, last, matched=len(handled), samples=())
    return replace(
        batch,
        scanned=reached.scanned,
        matched=reached.matched,
        skipped=len(replays.skipped.keys() & set(handled)),
        samples=batch.samples if handled else (),
        after_enqueued_at_ms=reached.after_enqueued_at_ms,
        after_id=reached.after_id,
        delay_ms=FULL_DELAY_MS,
        note=f"the queue `{letters[0].queue.queue}` is full; waiting for room",
    )


async def _compile(work: Work, text: str, queue: QueueRef) -> Patch:
    definition = await work.definitions.find(queue)
    return compile_patch(text, () if definition is None else definition.spec.message_type)


def _reached(window: Sequence[Row], last: Row, *, matched: int, samples: Sequence[Row]) -> Batch:
    return Batch(
        scanned=next(index for index, row in enumerate(window, start=1) if row is last),
        matched=matched,
        samples=tuple(str(row["id"]) for row in samples[:MAX_SAMPLES]),
        after_enqueued_at_ms=last["position_ms"],
        after_id=str(last["position_id"]),
    )


def batch_limit(action: BulkAction) -> int:
    """How many letters or messages this batch may take."""
    if action.dry_run:
        return COUNT_BATCH
    most = DELETE_BATCH if action.kind is BulkActionKind.PURGE else MAX_BATCH
    most = pace(action, most)
    if action.canary_state is CanaryState.SENDING:
        most = min(most, action.canary - len(action.canary_ids))
    return most


def pace(action: BulkAction, most: int) -> int:
    """How many a batch may take at the action's rate."""
    if action.rate_per_s is None:
        return most
    return min(most, max(1, int(action.rate_per_s * PACE_MS / 1000)))


def pause_ms(action: BulkAction, done: int) -> int:
    """How long to wait after a batch to keep to the action's rate."""
    return 0 if action.rate_per_s is None else round(done / action.rate_per_s * 1000)
