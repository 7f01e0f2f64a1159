"""One batch of a replay from a log: reads a window, picks the messages that are meant, and sends them.

Ids and idempotency keys follow from the bulk action and the message. If a batch went out and was not saved,
the next try sends the same messages under the same keys, and the queue drops them as duplicates. So nothing
is sent twice, for as long as the queue remembers idempotency keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from weir.broker.broker import GateRule
from weir.control.database import Connection
from weir.deadletters.bulk_action_batch import (
    FULL_DELAY_MS,
    Batch,
    Finish,
    Work,
    batch_limit,
    finished,
    pause_ms,
)
from weir.deadletters.bulk_actions import MAX_SAMPLES, BulkAction
from weir.deadletters.evaluation import Unanswered, judged
from weir.deadletters.lineage import (
    REPLAYED_FROM,
    log_replay_headers,
    log_replay_id_of,
    log_replay_key_of,
)
from weir.deadletters.log_selection import LogSelection, LogSource
from weir.deadletters.replay import GONE_OUT, split_sendable
from weir.lineage.children import ChildMessage, Kinship, record_children
from weir.model.durations import SECOND_MS
from weir.model.ids import MessageId
from weir.model.limits import MAX_BATCH
from weir.model.logged import LoggedMessage, place_of, read_place
from weir.model.message import NewMessage
from weir.model.names import QueueRef
from weir.model.wording import amount, moment

LANDING_MS = 10 * SECOND_MS
"""How long to wait for numbers that are missing in a log: a batch of the pipeline lands in parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picked:
    """The messages of a window that are meant, and why others are skipped, by their numbers."""

    messages: list[LoggedMessage]
    problems: dict[int, str]


async def replay_batch(work: Work, action: BulkAction, selection: LogSelection, log: LogSource) -> Finish:
    """Do the next batch; what came from which is left to be written down."""
    queue, missing = action.environment.queue(selection.queue), 0
    if action.cursor is None:
        waiting, missing = await _look_first(work, action, selection, log)
        if waiting is not None:
            return finished(waiting)
    window = await log.read(
        queue,
        from_ms=selection.from_ms,
        to_ms=selection.to_ms,
        key=selection.key,
        after=read_place(action.cursor),
        limit=_window(action, selection),
    )
    problem = f"{amount(missing, 'message')} that ended in the span are not in the log" if missing else None
    if not window:
        # The cursor stays: a replay that its canary stopped does not begin again when it is resumed.
        return finished(Batch(key_done=True, cursor=action.cursor, problem=problem))
    picked = await _pick(selection, window)
    taken = picked.messages[: batch_limit(action)]
    last = window[-1] if len(taken) == len(picked.messages) else taken[-1]
    if action.dry_run or not taken:
        batch, children = _reached(window, last, taken, picked.problems), list[ChildMessage]()
    else:
        batch, children = await _send(work, action, window, replace(picked, messages=taken), last)
    batch = replace(batch, problem=batch.problem or problem)

    async def finish(connection: Connection) -> Batch:
        if children:
            await record_children(connection, children)
        return batch

    return finish


async def _look_first(
    work: Work, action: BulkAction, selection: LogSelection, log: LogSource
) -> tuple[Batch | None, int]:
    """A batch that only waits, if the span has not landed yet; and how many of its messages are missing."""
    queue = action.environment.queue(selection.queue)
    landed_ms = await log.landed_until_ms(queue)
    if landed_ms < selection.to_ms:
        note = f"the log has landed until {moment(landed_ms)}; waiting for the pipeline"
        return Batch(delay_ms=FULL_DELAY_MS, note=note), 0
    account = await log.account(queue, from_ms=selection.from_ms, to_ms=selection.to_ms)
    if account.missing and work.now_ms < action.created_at_ms + LANDING_MS:
        note = f"waiting for {amount(account.missing, 'message')} to land in the log"
        return Batch(delay_ms=FULL_DELAY_MS, note=note), account.missing
    return None, account.missing


async def _pick(selection: LogSelection, window: Sequence[LoggedMessage]) -> _Picked:
    """The messages that are meant and can be sent; a message without an answer or a payload is skipped."""
    picked = _Picked(messages=[], problems={})
    answers = await judged(selection.predicate(), window)
    for message, answer in zip(window, answers, strict=True):
        if isinstance(answer, Unanswered):
            picked.problems[message.number] = answer.reason
        elif not answer:
            continue
        elif message.left_out:
            picked.problems[message.number] = "the log holds it without its payload, which was too large"
        else:
            picked.messages.append(message)
    return picked


async def _send(
    work: Work,
    action: BulkAction,
    window: Sequence[LoggedMessage],
    picked: _Picked,
    last: LoggedMessage,
) -> tuple[Batch, list[ChildMessage]]:
    """Send messages; the batch, and what came from which."""
    target = action.environment.queue(action.into or "")
    sendable, refused = split_sendable({one.number: replay_of(one, action.id) for one in picked.messages})
    problems = picked.problems | refused
    answers = (
        await work.broker.enqueue(target, list(sendable.values()), entry=GateRule.PASS) if sendable else []
    )
    sent: list[NewMessage] = []
    for message, answer in zip(sendable.values(), answers, strict=True):
        if answer.outcome not in GONE_OUT:
            break
        sent.append(message)
    is_full = len(sent) < len(sendable)
    if is_full:
        batch = _until_full(action, window, list(sendable)[: len(sent)], problems)
    else:
        batch = _reached(window, last, picked.messages, problems)
    batch = replace(
        batch,
        done=len(sent),
        replayed=tuple(message.id for message in sent),
        delay_ms=FULL_DELAY_MS if is_full else pause_ms(action, len(sent)),
        note=f"the queue `{target.queue}` is full; waiting for room" if is_full else None,
    )
    return batch, _children(target, sent, now_ms=work.now_ms)


def replay_of(message: LoggedMessage, action_id: str) -> NewMessage:
    """The message that a replay sends for one in the log."""
    life = message.life
    return NewMessage(
        payload=message.payload,
        id=MessageId(log_replay_id_of(life.message_id, action_id, ended_at_ms=life.ended_at_ms)),
        headers=log_replay_headers(message.headers, life.message_id, action_id),
        key=life.key,
        priority=life.priority,
        idempotency_key=log_replay_key_of(life.message_id, action_id),
    )


def _children(target: QueueRef, sent: Sequence[NewMessage], *, now_ms: int) -> list[ChildMessage]:
    """Which message came from which."""
    return [
        ChildMessage(
            queue=target,
            message_id=message.id,
            parent_id=message.headers[REPLAYED_FROM],
            kind=Kinship.REPLAYED,
            at_ms=now_ms,
        )
        for message in sent
    ]


def _until_full(
    action: BulkAction, window: Sequence[LoggedMessage], sent: Sequence[int], problems: Mapping[int, str]
) -> Batch:
    """The batch up to the last message that was sent before the queue was full."""
    if not sent:
        return Batch(cursor=action.cursor)
    taken = [one for one in window if one.number in set(sent)]
    return _reached(window, taken[-1], taken, problems)


def _reached(
    window: Sequence[LoggedMessage],
    last: LoggedMessage,
    taken: Sequence[LoggedMessage],
    problems: Mapping[int, str],
) -> Batch:
    """The batch up to `last`; the next one begins behind it."""
    passed = window[: next(place for place, one in enumerate(window, start=1) if one is last)]
    skipped = [problems[one.number] for one in passed if one.number in problems]
    return Batch(
        scanned=len(passed),
        matched=len(taken),
        skipped=len(skipped),
        samples=tuple(one.life.message_id for one in taken[:MAX_SAMPLES]),
        cursor=str(place_of(last)),
        problem=skipped[-1] if skipped else None,
    )


def _window(action: BulkAction, selection: LogSelection) -> int:
    """How many messages to read; without an expression, no more than the batch may send."""
    return MAX_BATCH if action.dry_run or selection.expression is not None else batch_limit(action)
