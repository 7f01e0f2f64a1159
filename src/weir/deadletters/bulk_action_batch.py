"""One batch of a bulk action: reads a window of letters, and sends, deletes or counts the ones that match.

No transaction is open while letters are read, evaluated or sent. A batch ends with what is left to write, and
the runner does that in the transaction that saves the action.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, takewhile

from weir.broker.broker import Broker
from weir.control.database import Connection, Database, Row, fetch
from weir.control.queue_definitions import QueueDefinitions
from weir.control.sql import NamedQuery
from weir.deadletters.bulk_actions import MAX_SAMPLES, NIL, BulkAction, BulkActionKind, CanaryState
from weir.deadletters.dead_letter import DeadLetter, read_letters
from weir.deadletters.evaluation import Unanswered, judged
from weir.deadletters.filters import letter_predicate
from weir.deadletters.patch import Patch, compile_patch
from weir.deadletters.queries import DEAD_LETTERS
from weir.deadletters.replay import Hand, Replays, delete, prepare, send, settle, split_sendable
from weir.deadletters.summary import count_gone
from weir.model.limits import MAX_BATCH, MAX_HEADER_BYTES
from weir.model.names import QueueRef

FULL_DELAY_MS = 1_000
"""When to try again if the queue is full."""
HELD_DELAY_MS = 200
"""When to look again at letters that another redrive has in hand."""
HELD_NOTE = "another redrive has the next letters in hand; waiting for it"
PACE_MS = 500
"""An action with a rate does about one batch in this time, with as many letters as the rate allows in it."""
DELETE_BATCH = 1_000
"""Letters per transaction of a purge. Their groups and consumers are locked until it ends."""
DELETE_BYTES = 64 << 20
"""Bytes of payloads per transaction of a purge; PostgreSQL deletes them in pieces of 2 kB."""
COUNT_BATCH = 5_000
"""Letters per batch of a dry run that reads no payloads."""
BATCH_BYTES = 2 << 20
"""Bytes of letters that a batch reads, unless the first letter alone has more. A megabyte holds the event
loop for about 10 ms until it is read and sent."""
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


Finish = Callable[[Connection], Awaitable[Batch]]
"""What is left of a batch: its writes, in the transaction that saves its action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """The rows of a window that are meant, and how many the expression had no answer for."""

    rows: Sequence[Row]
    letters: Mapping[str, DeadLetter] = field(default_factory=dict)
    """The letters that were read to find out."""
    unanswered: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The stores and the time that a batch works with, and the letters that it has in hand."""

    database: Database
    broker: Broker
    definitions: QueueDefinitions
    now_ms: int
    hand: Hand


def finished(batch: Batch) -> Finish:
    """A batch that has nothing left to write."""

    async def finish(_: Connection) -> Batch:
        return batch

    return finish


async def do_batch(work: Work, action: BulkAction) -> Finish:
    """Do the next batch of the action's current walk key."""
    if action.kind is BulkActionKind.PURGE and not action.dry_run and action.filter.expression is None:
        return partial(_purge_by_fields, work, action)
    async with work.database.connection() as connection:
        window = await _fetch_next(
            connection, work, action, WINDOWS[action.by_group], limit=_window_size(action)
        )
    if not window:
        return finished(Batch(key_done=True))
    window = _that_may_be_read(action, window)
    if not window:
        return finished(_stay(action, delay_ms=HELD_DELAY_MS, note=HELD_NOTE))
    meant = await _pick(work, action, window)
    taken = meant.rows[: batch_limit(action)]
    # The cursor moves past the whole window, unless the next batch must take the rest of it.
    last = window[-1] if len(taken) == len(meant.rows) else taken[-1]
    batch = _reached(window, last, matched=len(taken), samples=taken)
    if last is window[-1]:
        batch = replace(batch, skipped=meant.unanswered, problem=meant.problem)
    if not taken:
        return finished(batch)
    if action.dry_run:
        return finished(await _count_unsendable(work, action, taken, meant, batch))
    if action.kind is BulkActionKind.PURGE:
        return partial(_delete, work, action, window, taken, batch)
    return await _redrive(work, action, window, taken, meant, batch)


async def _purge_by_fields(work: Work, action: BulkAction, connection: Connection) -> Batch:
    """Purge with one statement, since no expression has to see the letters."""
    rows = await _fetch_next(
        connection,
        work,
        action,
        PURGES[action.by_group],
        limit=batch_limit(action),
        most_bytes=DELETE_BYTES,
    )
    if not rows[0]["seen"]:
        return Batch(key_done=True)
    if not rows[0]["scanned"]:
        return _stay(action, delay_ms=HELD_DELAY_MS, note=HELD_NOTE)
    # A window without a letter to delete is one row without a group.
    gone = [row for row in rows if row["letters"]]
    done = await count_gone(connection, gone, now_ms=work.now_ms)
    return Batch(
        scanned=rows[0]["scanned"],
        matched=rows[0]["matched"],
        done=done,
        after_enqueued_at_ms=rows[0]["position_ms"],
        after_id=str(rows[0]["position_id"]),
        delay_ms=pause_ms(action, done),
    )


async def _delete(
    work: Work,
    action: BulkAction,
    window: Sequence[Row],
    taken: Sequence[Row],
    batch: Batch,
    connection: Connection,
) -> Batch:
    """Delete letters up to one that a redrive took in hand while they were looked at."""
    ids = [str(row["id"]) for row in taken]
    locked = await fetch(connection, DEAD_LETTERS["lock_dead"], ids=ids, now_ms=work.now_ms)
    held = {row["id"] for row in locked if row["held"]}
    free = list(takewhile(lambda row: row["id"] not in held, taken))
    done = await delete(connection, [str(row["id"]) for row in free], now_ms=work.now_ms)
    if len(free) == len(taken):
        return replace(batch, done=done, delay_ms=pause_ms(action, done))
    reached = _reached(window, free[-1], matched=len(free), samples=free) if free else _stay(action)
    return replace(reached, done=done, delay_ms=HELD_DELAY_MS, note=HELD_NOTE)


async def _fetch_next(
    connection: Connection, work: Work, action: BulkAction, query: NamedQuery, **limits: int
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
        now_ms=work.now_ms,
        **limits,
        **action.filter.conditions(),
    )


def _window_size(action: BulkAction) -> int:
    if action.filter.expression is not None or action.patch is not None:
        return MAX_BATCH
    if action.dry_run:
        return COUNT_BATCH
    return DELETE_BATCH if action.kind is BulkActionKind.PURGE else MAX_BATCH


def _that_may_be_read(action: BulkAction, window: Sequence[Row]) -> list[Row]:
    """The beginning of a window: until its bytes are enough, and before a letter that somebody has in
    hand."""
    sizes = [row["bytes"] if _is_read(action, row) else 0 for row in window]
    before = (total - size for total, size in zip(accumulate(sizes), sizes, strict=True))
    fits = [row for row, bytes_before in zip(window, before, strict=True) if bytes_before < BATCH_BYTES]
    if action.dry_run:
        return fits
    return list(takewhile(lambda row: not (row["held"] and row["admitted"]), fits))


def _is_read(action: BulkAction, row: Row) -> bool:
    """Whether the batch reads all of a letter; the others are only counted or deleted."""
    if not row["admitted"]:
        return False
    if action.filter.expression is not None or action.patch is not None:
        return True
    if action.kind is BulkActionKind.PURGE:
        return False
    return not action.dry_run or bool(row["envelope_bytes"] > LARGE_ENVELOPE)


async def _pick(work: Work, action: BulkAction, window: Sequence[Row]) -> Meant:
    """The rows that are meant.

    A letter for which the expression has no answer is not meant, and is counted.
    """
    admitted = [row for row in window if row["admitted"]]
    if action.filter.expression is None or not admitted:
        return Meant(rows=admitted)
    letters = await _read(work, admitted)
    there = [row for row in admitted if str(row["id"]) in letters]
    holds = letter_predicate(action.filter.expression)
    answers = await judged(holds, [letters[str(row["id"])] for row in there])
    unanswered = [answer.reason for answer in answers if isinstance(answer, Unanswered)]
    return Meant(
        rows=[row for row, answer in zip(there, answers, strict=True) if answer is True],
        letters=letters,
        unanswered=len(unanswered),
        problem=unanswered[-1] if unanswered else None,
    )


async def _read(work: Work, rows: Sequence[Row]) -> dict[str, DeadLetter]:
    """Whole letters by id, in their original order; the caller has bounded their bytes."""
    return {one.id: one for one in await read_letters(work.database, [str(row["id"]) for row in rows])}


async def _read_taken(work: Work, taken: Sequence[Row], meant: Meant) -> list[DeadLetter]:
    letters = meant.letters or await _read(work, taken)
    wanted = {str(row["id"]) for row in taken}
    return [letter for letter in letters.values() if letter.id in wanted]


async def _count_unsendable(
    work: Work, action: BulkAction, taken: Sequence[Row], meant: Meant, batch: Batch
) -> Batch:
    """Count the letters that a redrive would skip: the patch breaks them, or no queue would take them."""
    doubtful = [row for row in taken if action.patch is not None or row["envelope_bytes"] > LARGE_ENVELOPE]
    if action.kind is BulkActionKind.PURGE or not doubtful:
        return batch
    letters = await _read_taken(work, doubtful, meant)
    messages, skipped = await prepare(letters, action.id, await _patch(work, action, letters))
    skipped |= split_sendable(messages)[1]
    return replace(
        batch,
        skipped=batch.skipped + len(skipped),
        problem=next(iter(skipped.values()), batch.problem),
    )


async def _redrive(
    work: Work,
    action: BulkAction,
    window: Sequence[Row],
    taken: Sequence[Row],
    meant: Meant,
    batch: Batch,
) -> Finish:
    letters = await _read_taken(work, taken, meant)
    if not letters:
        return finished(batch)
    messages, skipped = await prepare(letters, action.id, await _patch(work, action, letters))
    replays = await send(work.broker, work.hand, letters[0].queue, messages, now_ms=work.now_ms)
    skipped |= replays.skipped
    batch = replace(
        batch,
        done=len(replays.replayed),
        skipped=batch.skipped + len(skipped),
        replayed=tuple(replays.replayed),
        delay_ms=pause_ms(action, len(replays.replayed)),
        problem=next(iter(skipped.values()), batch.problem),
    )
    if replays.stopped is not None:
        batch = _until_stopped(action, window, letters, replace(replays, skipped=skipped), batch)
    return partial(_settle, work, action, replays.replayed, batch)


async def _settle(
    work: Work, action: BulkAction, replayed: Mapping[str, str], batch: Batch, connection: Connection
) -> Batch:
    await settle(connection, work.hand, replayed, action_id=action.id, now_ms=work.now_ms)
    return batch


def _until_stopped(
    action: BulkAction, window: Sequence[Row], letters: Sequence[DeadLetter], replays: Replays, batch: Batch
) -> Batch:
    """The batch up to the last letter that was sent or skipped before one could not be, and then a pause.

    The cursor must not pass a letter that was not sent, or letters after it would overtake it.
    """
    settled = replays.replayed.keys() | replays.skipped.keys() | replays.gone
    handled = [letter.id for letter in takewhile(lambda letter: letter.id in settled, letters)]
    reached = _stay(action)
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
        delay_ms=FULL_DELAY_MS if replays.full else HELD_DELAY_MS,
        note=replays.stopped,
    )


async def _patch(work: Work, action: BulkAction, letters: Sequence[DeadLetter]) -> Patch | None:
    if action.patch is None or not letters:
        return None
    return await compile_for(work.definitions, action.patch, letters[0].queue)


async def compile_for(definitions: QueueDefinitions, text: str, queue: QueueRef) -> Patch:
    """A patch with the message type that payloads of a queue must have."""
    definition = await definitions.find(queue)
    return compile_patch(text, () if definition is None else definition.spec.message_type)


def _stay(action: BulkAction, **members: object) -> Batch:
    """A batch that did nothing: the next one begins where this one did."""
    here = Batch(
        after_enqueued_at_ms=action.after_enqueued_at_ms, after_id=action.after_id, cursor=action.cursor
    )
    return replace(here, **members)  # type: ignore[arg-type]


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
