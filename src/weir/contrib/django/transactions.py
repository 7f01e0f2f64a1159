"""Tasks that belong to a transaction: enqueued through the outbox, and found there until they are relayed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.db import connections

from weir.client.values import OutgoingMessage
from weir.contrib.django.interface import TaskResultStatus
from weir.contrib.django.record import CallRecord, DjangoCall
from weir.contrib.django.results import OUTBOX, FoundCall
from weir.model.ids import is_canonical_id, new_id
from weir.model.message_headers import TASK
from weir.outbox.row import outbox_row
from weir.outbox.transactional_push import SQL, push_through_django


def push_to_outbox(database: str, make: Callable[[str], OutgoingMessage]) -> str:
    """Write the message of a task into the open transaction. Returns the id of its result.

    The relay pushes the message with that id as its idempotency key, and the result is found by that key.
    """
    row_id = new_id()
    message = make(f"{OUTBOX}{row_id}")
    assert isinstance(message.payload, bytes)
    row = outbox_row(
        message.queue,
        message.payload,
        key=message.key,
        headers=message.headers,
        delay=_delay(message.deliver_at),
        priority=message.priority,
        idempotency_key=f"{OUTBOX}{row_id}",
    )
    push_through_django(database, {**row, "id": row_id})
    return f"{OUTBOX}{row_id}"


def find_in_outbox(database: str, result_id: str) -> FoundCall | None:
    """A task that the relay has not taken yet."""
    row_id = result_id.removeprefix(OUTBOX)
    if not is_canonical_id(row_id):
        return None
    with connections[database].cursor() as cursor:
        cursor.execute(SQL["find_waiting"].text, {"id": row_id})
        row: tuple[Any, ...] | None = cursor.fetchone()
    if row is None:
        return None
    queue, payload, headers = row
    call = DjangoCall.of(json.loads(bytes(payload)))
    record = CallRecord(task=json.loads(headers)[TASK], queue=queue, call=call)
    return FoundCall(record=record, status=TaskResultStatus.READY)


def _delay(deliver_at: datetime | None) -> float | None:
    """The seconds from now to a time, because the outbox knows delays and no times."""
    return None if deliver_at is None else max(0.0, (deliver_at - datetime.now(UTC)).total_seconds())
