"""Reads the result of a task back: from its queue, from what its worker kept, or from the dead letters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from weir.client.errors import ApiError
from weir.client.outcomes import MessageOutcome
from weir.client.sync import Weir
from weir.contrib.django.interface import TaskResultStatus
from weir.contrib.django.record import CallRecord, DjangoCall
from weir.model.ids import is_canonical_id
from weir.model.message_headers import TASK

T = TypeVar("T")
OUTBOX = "outbox:"
"""The prefix of the result id of a task that went through the outbox.

The message of the task has the result id as its idempotency key."""
_OPERATION = "operation:"
_LOOKS = 10
_LOOK_AGAIN_S = 0.3
"""A message may move between two looks, and a dead one takes about a second to become a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCall:
    """What is known about a call."""

    record: CallRecord
    status: Any


def queued_id(operation_id: str) -> str:
    """The id of a result whose push itself is queued."""
    return f"{_OPERATION}{operation_id}"


def find_call(weir: Weir, result_id: str, queues: Iterable[str]) -> FoundCall | None:
    """Look up a task by the id of its result; None if nothing is known about it."""
    message_id = _message_id(weir, result_id, queues)
    if message_id is None:
        return None
    for _ in range(_LOOKS):
        outcome = weir.outcome(message_id)
        found = _found(weir, message_id, outcome)
        if found is not None or (outcome.ended and outcome.status != "dead"):
            return found
        time.sleep(_LOOK_AGAIN_S)
    return None


def _message_id(weir: Weir, result_id: str, queues: Iterable[str]) -> str | None:
    if result_id.startswith(OUTBOX):
        return _find_by_key(weir, result_id, queues)
    if result_id.startswith(_OPERATION):
        operation = _or_none(lambda: weir.operation(result_id.removeprefix(_OPERATION)))
        rows = ((operation and operation.result) or {}).get("messages", [])
        return rows[0]["id"] if rows else None
    return result_id if is_canonical_id(result_id) else None


def _find_by_key(weir: Weir, key: str, queues: Iterable[str]) -> str | None:
    looks = (_or_none(partial(weir.find_message, queue, idempotency_key=key)) for queue in sorted(queues))
    return next((found for found in looks if found is not None), None)


def _found(weir: Weir, message_id: str, outcome: MessageOutcome) -> FoundCall | None:
    told = CallRecord.of(outcome.progress)
    match outcome.status:
        case "done":
            record = CallRecord.of(outcome.result)
            return None if record is None else FoundCall(record=record, status=TaskResultStatus.SUCCESSFUL)
        case "dead":
            return _died(weir, message_id, told, outcome.error)
        case "waiting" | "running" | "queued":
            return _waits(weir, message_id, told, outcome)
        case _:
            return None


def _died(weir: Weir, message_id: str, told: CallRecord | None, error: str | None) -> FoundCall | None:
    """The record that the last attempt told. If it told no end, the dead letter says how it ended."""
    if told is not None and told.finished_ms is not None:
        return FoundCall(record=told, status=TaskResultStatus.FAILED)
    letter = _letter(weir, message_id)
    if letter is None:
        return None
    record = told or _asked(letter["queue"], letter)
    if record is None:
        return None
    lost = ("weir.TaskFailed", error or letter["error"])
    ended = replace(record, errors=(*record.errors, lost), finished_ms=letter["died_at_ms"])
    return FoundCall(record=ended, status=TaskResultStatus.FAILED)


def _letter(weir: Weir, message_id: str) -> dict[str, Any] | None:
    shown = _or_none(lambda: weir.message(message_id))
    queue = None if shown is None else shown["queue"]
    return None if queue is None else _or_none(lambda: weir.dead_letter(message_id, queue=queue))


def _waits(weir: Weir, message_id: str, told: CallRecord | None, outcome: MessageOutcome) -> FoundCall | None:
    running = outcome.status == "running"
    status = TaskResultStatus.RUNNING if running else TaskResultStatus.READY
    if told is not None:
        return FoundCall(record=told, status=status)
    shown = _or_none(lambda: weir.message(message_id))
    if shown is None or shown["message"] is None:
        return None
    record = _asked(shown["queue"], shown["message"])
    return None if record is None else FoundCall(record=record, status=status)


def _asked(queue: str, message: dict[str, Any]) -> CallRecord | None:
    """The record of a message whose attempts told nothing."""
    path, payload = message["headers"].get(TASK), message["payload"]
    if path is None or not isinstance(payload, dict) or "args" not in payload:
        return None
    return CallRecord(task=path, queue=queue, call=DjangoCall.of(payload))


def _or_none(look: Callable[[], T]) -> T | None:
    """The answer of the API; None if the API does not know what is asked for."""
    try:
        return look()
    except ApiError as error:
        if error.status in (404, 409, 422):
            return None
        raise
