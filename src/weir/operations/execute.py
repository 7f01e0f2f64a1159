"""Run claimed operations through the broker: many per call, in order, and each at most once.

Whatever an operation raises is its own end, so the others of its round are not affected.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import structlog

from weir.admission.kinds import OperationType
from weir.broker.broker import Broker, CallAnswer, ForOperations
from weir.errors import BrokerUnavailable, CallStale, InvalidInput, LeaseLost, Unavailable, WeirError
from weir.model.ids import NamedCall
from weir.model.item_loops import is_own_end, text_of
from weir.model.limits import MAX_BATCH
from weir.model.message import Enqueue, Enqueued, Failure, NewMessage, Settlement, Verb
from weir.model.names import QueueRef
from weir.model.parents import chained_from
from weir.operations.model import MAX_TRIES, Claimed, OperationStatus, SettledOperation
from weir.operations.payload import Push, decode_push, decode_settle

log = structlog.get_logger(__name__)

OUTAGE_DELAY_MS = 250
FULL_DELAY_MS = 250
RETRY_DELAY_MS = 200
MAX_RETRY_DELAY_MS = 10_000
_MOST_NAMED = 5
_SETTLING = (OperationType.ACK_BATCH, OperationType.ACK_SINGLE)


Answers = dict[str, list[Enqueued] | BaseException]
"""What the broker did with the messages of each operation, or why it did nothing."""


class GateLost(WeirError):
    """The operation is not on its gate: someone else finished it, or the broker lost the gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A decoded push, without the messages that an earlier direct attempt had put in."""

    claimed: Claimed
    messages: tuple[NewMessage, ...]
    """The messages that are still to be put in."""
    push: Push
    done: Mapping[int, CallAnswer]
    """What the earlier attempt did with the others, by their places in the push."""


async def execute(broker: Broker, claimed: Sequence[Claimed]) -> list[SettledOperation]:
    """Run operations of any queues: in the given order within a queue, all queues at the same time."""
    by_queue: dict[QueueRef, list[Claimed]] = defaultdict(list)
    alone: list[Claimed] = []
    given_up = [_given_up(operation) for operation in claimed if operation.tries > MAX_TRIES]
    for operation in claimed:
        if operation.tries > MAX_TRIES:
            continue
        if operation.type == OperationType.PUSH:
            by_queue[operation.queue].append(operation)
        else:
            alone.append(operation)
    runs = [_run_pushes(broker, queue, operations) for queue, operations in by_queue.items()]
    runs += [_run_alone(broker, operation) for operation in alone]
    return given_up + [settled for results in await asyncio.gather(*runs) for settled in results]


async def _run_alone(broker: Broker, operation: Claimed) -> list[SettledOperation]:
    try:
        if operation.type not in _SETTLING:
            raise InvalidInput(f"there is no operation of type `{operation.type}`")
        settle = decode_settle(operation.payload)
        outcomes = await settle_through(broker, settle.verb, settle.failures)
    except BaseException as error:
        return [failed(operation, error)]
    return [_settled(operation, settle.failures, outcomes)]


def _settled(
    operation: Claimed, failures: Sequence[Failure], outcomes: Sequence[Settlement]
) -> SettledOperation:
    """The end of a settlement. It has failed if it came too late for any of its leases."""
    result = {"settlements": [outcome.value for outcome in outcomes]}
    late = [
        failure.lease.message_id
        for failure, outcome in zip(failures, outcomes, strict=True)
        if outcome is Settlement.LAPSED
    ]
    if not late:
        return _completed(operation, result)
    named = ", ".join(f"`{one}`" for one in late[:_MOST_NAMED]) + (", …" if len(late) > _MOST_NAMED else "")
    text = (
        f"{LeaseLost.code}: {len(late)} of {len(outcomes)} leases lapsed or were settled before; "
        f"nothing changed for {named}"
    )
    return replace(_failed_for_good(operation, text), counted=False, result=result)


async def settle_through(broker: Broker, verb: Verb, failures: Sequence[Failure]) -> list[Settlement]:
    """Ack, nack or dead-letter through the broker."""
    match verb:
        case Verb.ACK:
            leases = [failure.lease for failure in failures]
            results = [failure.result for failure in failures]
            return await (broker.ack(leases, results=results) if any(results) else broker.ack(leases))
        case Verb.NACK:
            return await broker.nack(failures)
        case Verb.DEAD_LETTER:
            return await broker.dead_letter(failures)


async def _run_pushes(broker: Broker, queue: QueueRef, operations: list[Claimed]) -> list[SettledOperation]:
    """Pushes of one queue. A partition stops at its first operation that must be tried again."""
    results: list[SettledOperation] = []
    ready: list[_Ready] = []
    stopped: dict[int, SettledOperation] = {}
    for operation in operations:
        if operation.partition in stopped:
            results.append(_behind(operation, stopped[operation.partition]))
            continue
        try:
            ready.append(await _prepare(broker, operation))
        except BaseException as error:
            result = failed(operation, error)
            results.append(result)
            if result.status is OperationStatus.PENDING:
                stopped[operation.partition] = result
    for chunk in _chunks(ready):
        results += await _run_chunk(broker, queue, chunk, stopped)
    return results


async def _prepare(broker: Broker, operation: Claimed) -> _Ready:
    push = decode_push(operation.payload)
    done: dict[int, CallAnswer] = {}
    if push.call is not None:
        told = await _ask_call(broker, operation.queue, push.call)
        # A client in direct mode says where its message stood, and may be wrong.
        known = [(at, place) for at, place in enumerate(push.places) if place < len(told)]
        done = {at: told[place] for at, place in known if told[place].is_done}
    left = (message for at, message in enumerate(push.messages) if at not in done)
    messages = tuple(_waited(message, operation.age_ms) for message in left)
    return _Ready(claimed=operation, messages=messages, push=push, done=done)


async def _ask_call(broker: Broker, queue: QueueRef, call: NamedCall) -> list[CallAnswer]:
    """What the earlier attempt did. If its slot made a later call since, nobody can tell, and all is put in:
    what was accepted may come twice, under one id, and is not left out."""
    try:
        return await broker.settle_call(queue, call)
    except CallStale:
        return []


def _waited(message: NewMessage, age_ms: int) -> NewMessage:
    """The message with the rest of its delay, which began when the operation was queued."""
    if not message.delay_ms:
        return message
    return msgspec.structs.replace(message, delay_ms=max(0, message.delay_ms - max(0, age_ms)))


def _chunks(ready: Sequence[_Ready]) -> Iterator[list[_Ready]]:
    """Whole operations, up to the broker's batch."""
    chunk: list[_Ready] = []
    size = 0
    for one in ready:
        if chunk and size + len(one.messages) > MAX_BATCH:
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += len(one.messages)
    if chunk:
        yield chunk


async def _run_chunk(
    broker: Broker, queue: QueueRef, chunk: list[_Ready], stopped: dict[int, SettledOperation]
) -> list[SettledOperation]:
    """Make one call for all. If it fails though the broker answers, make one call each, to find the cause."""
    running = [one for one in chunk if one.claimed.partition not in stopped]
    results = [
        _behind(o.claimed, stopped[o.claimed.partition]) for o in chunk if o.claimed.partition in stopped
    ]
    if not running:
        return results
    try:
        answers = await _enqueue(broker, queue, running)
    except BaseException as error:
        if is_own_end(error):
            raise
        if len(running) > 1 and not isinstance(error, BrokerUnavailable):
            for one in running:
                results += await _run_chunk(broker, queue, [one], stopped)
            return results
        answers = {one.claimed.id: error for one in running}
    for one in running:
        try:
            result = _result(one, answers[one.claimed.id], stopped)
        except Exception as error:
            result = failed(one.claimed, error)
        results.append(result)
        if result.status is OperationStatus.PENDING:
            stopped.setdefault(one.claimed.partition, result)
    return results


async def _enqueue(broker: Broker, queue: QueueRef, running: list[_Ready]) -> Answers:
    messages = [message for one in running for message in one.messages]
    operations = [one.claimed.id for one in running for _ in one.messages]
    answers = await broker.enqueue(queue, messages, entry=ForOperations(ids=operations)) if messages else []
    by_operation: Answers = {}
    at = 0
    for one in running:
        by_operation[one.claimed.id] = answers[at : at + len(one.messages)]
        at += len(one.messages)
    return by_operation


def _result(
    one: _Ready, answer: list[Enqueued] | BaseException, stopped: dict[int, SettledOperation]
) -> SettledOperation:
    operation = one.claimed
    if operation.partition in stopped:
        return _behind(operation, stopped[operation.partition])
    if isinstance(answer, BaseException):
        return failed(operation, answer)
    outcomes = [enqueued.outcome for enqueued in answer]
    if Enqueue.GATED in outcomes:
        return _again(operation, delay_ms=0, error=GateLost.__name__)
    if Enqueue.FULL in outcomes:
        text = f"the queue `{operation.queue.queue}` is full; the operation waits for room"
        return _again(operation, delay_ms=FULL_DELAY_MS, error=text)
    rows = _rows(one, iter(answer))
    return replace(_completed(operation, {"messages": rows}), chained=_chained(one.push.messages, rows))


def _rows(one: _Ready, put_in: Iterator[Enqueued]) -> list[dict[str, str]]:
    """Every message of the operation in its order, each by the id under which it is in the queue."""
    rows = []
    for at, message in enumerate(one.push.messages):
        told = one.done.get(at)
        if told is None:
            enqueued = next(put_in)
            outcome, message_id = enqueued.outcome, enqueued.message_id
        else:
            outcome, message_id = told.outcome, told.original_id or message.id
        # It was put in by an earlier attempt, and is not a duplicate of another.
        accepted = outcome is Enqueue.DUPLICATE and message_id == message.id
        row = {"id": message_id, "status": Enqueue.ACCEPTED.value if accepted else outcome.value}
        if message.idempotency_key is not None:
            row["idempotency_key"] = message.idempotency_key
        rows.append(row)
    return rows


def _chained(
    messages: Sequence[NewMessage], rows: Sequence[Mapping[str, str]]
) -> tuple[tuple[str, str], ...]:
    parents = (chained_from(message.headers) if message.headers else None for message in messages)
    return tuple((parent, row["id"]) for parent, row in zip(parents, rows, strict=True) if parent is not None)


def _completed(operation: Claimed, result: dict[str, Any]) -> SettledOperation:
    return SettledOperation(
        id=operation.id, partition=operation.partition, status=OperationStatus.COMPLETED, result=result
    )


def failed(operation: Claimed, error: BaseException) -> SettledOperation:
    """Try again after an outage. Any other error counts as a retry; after the last retry it has failed.

    Raises an error that is not the operation's, such as the end of this process.
    """
    if is_own_end(error):
        raise error
    if not isinstance(error, WeirError):
        log.error("an operation failed", operation=operation.id, exc_info=error)
    text = f"{error.code}: {text_of(error)}" if isinstance(error, WeirError) else text_of(error)
    if isinstance(error, Unavailable):
        return _again(operation, delay_ms=OUTAGE_DELAY_MS, error=text)
    if operation.retry_count >= operation.max_retries:
        return _failed_for_good(operation, text)
    delay_ms = min(MAX_RETRY_DELAY_MS, RETRY_DELAY_MS << operation.retry_count)
    return _again(operation, delay_ms=delay_ms, error=text, counted=True)


def _given_up(operation: Claimed) -> SettledOperation:
    text = f"given up after {MAX_TRIES} tries: the process that worked on it ended each time"
    return _failed_for_good(operation, text)


def _failed_for_good(operation: Claimed, text: str) -> SettledOperation:
    return SettledOperation(
        id=operation.id,
        partition=operation.partition,
        status=OperationStatus.FAILED,
        counted=True,
        error=text,
    )


def _again(operation: Claimed, *, delay_ms: int, error: str, counted: bool = False) -> SettledOperation:
    return SettledOperation(
        id=operation.id,
        partition=operation.partition,
        status=OperationStatus.PENDING,
        counted=counted,
        error=error,
        delay_ms=delay_ms,
    )


def _behind(operation: Claimed, head: SettledOperation) -> SettledOperation:
    """Not run, because an operation before it in its partition must be tried again first."""
    return SettledOperation(
        id=operation.id, partition=operation.partition, status=OperationStatus.PENDING, delay_ms=head.delay_ms
    )
