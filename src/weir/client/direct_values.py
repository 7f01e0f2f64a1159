"""Messages, answers and errors of the broker in the words of the client, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from weir.broker.layout import ENQUEUE_LETTERS, PLAIN_BODY, id_text, pack_arrival
from weir.client.direct_opening import DirectOptions
from weir.client.encoding import encode, encode_quickly
from weir.client.options import DEFAULTS
from weir.client.values import (
    OutgoingMessage,
    PushResult,
    ReceivedMessage,
    span_of,
    time_of,
    unix_ms,
)
from weir.errors import BrokerUnavailable, Misconfigured, WeirError
from weir.model.durations import to_ms
from weir.model.ids import MessageId, new_message_id
from weir.model.message import (
    NO_HEADERS,
    Delivery,
    Enqueue,
    NewMessage,
    check_depth,
    check_message,
    key_reused,
    may_be_deep,
)
from weir.model.names import QueueRef
from weir.model.problem_documents import problem
from weir.operations.model import queue_full

BINARY = "application/octet-stream"
Parcel: TypeAlias = tuple[str, bytes, bytes]
"""A message that is checked and packed: its id, the part that the script reads, and its body."""
_BYTES = (bytes, bytearray, memoryview)
_ACCEPTED, _DUPLICATE, _KEY_REUSED, _FULL = (
    ord(ENQUEUE_LETTERS[outcome])
    for outcome in (Enqueue.ACCEPTED, Enqueue.DUPLICATE, Enqueue.KEY_REUSED, Enqueue.FULL)
)


class ResumedMessage(OutgoingMessage, frozen=True, kw_only=True):
    """A message that Redis may have got, and the call that it was in."""

    call: Mapping[str, Any]

    def document(
        self, *, retry_window_ms: int = DEFAULTS.retry_window_ms, keyed: bool = True
    ) -> dict[str, Any]:
        """The item of a push request."""
        item = OutgoingMessage.document(self, retry_window_ms=retry_window_ms, keyed=keyed)
        return {**item, "call": self.call}


def pack_message(message: OutgoingMessage, options: DirectOptions) -> Parcel:
    """The message as the broker takes it; WeirError if it is over a limit of the API.

    A key that the client made is for its retries. Here the name of the call does that work, at less cost, and
    the key becomes the id.
    """
    payload, key = message.payload, message.idempotency_key
    if isinstance(payload, _BYTES) or not message.has_made_key or not _is_plain(message):
        return _pack_any(message, options)
    data = encode_quickly(payload)
    if len(data) > options.max_payload_bytes or may_be_deep(data, options.max_depth):
        return _pack_any(message, options)
    return key, bytes.fromhex(key.replace("-", "")), PLAIN_BODY + data


def _is_plain(message: OutgoingMessage) -> bool:
    return (
        message.key is None
        and not message.headers
        and message.priority is None
        and message.delay is None
        and message.deliver_at is None
        and message.ttl is None
    )


def _pack_any(message: OutgoingMessage, options: DirectOptions) -> Parcel:
    payload, headers, key = message.payload, message.headers or NO_HEADERS, message.idempotency_key
    made = message.has_made_key
    if isinstance(payload, _BYTES):
        data = bytes(payload)
        headers = {"content-type": BINARY, **headers}
    else:
        data = encode_quickly(payload) if made else encode(payload)
        if may_be_deep(data, options.max_depth):
            check_depth(payload, options.max_depth)
    new = NewMessage(
        payload=data,
        id=MessageId(key) if made else new_message_id(),
        headers=headers,
        key=message.key,
        priority=message.priority,
        deliver_at_ms=None if message.deliver_at is None else unix_ms(message.deliver_at),
        delay_ms=None if message.delay is None else to_ms(message.delay),
        ttl_ms=None if message.ttl is None else to_ms(message.ttl),
        idempotency_key=None if made else key,
    )
    check_message(new, max_payload=options.max_payload_bytes)
    return new.id, *pack_arrival(new)


def read_letters(queue: QueueRef, parcels: Sequence[Parcel], answer: bytes) -> list[PushResult | None]:
    """The result of each message of a call; None for a gated message."""
    if is_accepted(parcels, answer):
        return list(accepted_results(parcels))
    count = len(parcels)
    results: list[PushResult | None] = []
    originals = iter(range(count, len(answer), 16))
    for parcel, letter in zip(parcels, answer[:count], strict=True):
        if letter == _ACCEPTED:
            results.append(PushResult(status="accepted", id=parcel[0]))
        elif letter == _DUPLICATE:
            start = next(originals)
            results.append(PushResult(status="duplicate", id=id_text(answer[start : start + 16])))
        elif letter == _KEY_REUSED:
            next(originals)
            results.append(_refused(key_reused()))
        elif letter == _FULL:
            results.append(_refused(queue_full(queue)))
        else:
            results.append(None)
    return results


def is_accepted(parcels: Sequence[Parcel], answer: object) -> bool:
    """Whether a call accepted every message."""
    count = len(parcels)
    return isinstance(answer, bytes) and answer.count(_ACCEPTED, 0, count) == count


def accepted_results(parcels: Sequence[Parcel]) -> list[PushResult]:
    return [PushResult(status="accepted", id=parcel[0]) for parcel in parcels]


def _refused(error: WeirError) -> PushResult:
    return PushResult(status="refused", problem=problem(error))


def to_received(delivery: Delivery) -> ReceivedMessage:
    return ReceivedMessage(
        id=delivery.message_id,
        queue=delivery.queue.queue,
        lease=delivery.lease.token,
        payload=delivery.payload,
        headers=dict(delivery.headers),
        key=delivery.key,
        priority=delivery.priority,
        attempt=delivery.attempt,
        enqueued_at=time_of(delivery.enqueued_at_ms),
        lease_until=time_of(delivery.lease_until_ms),
        wait=span_of(delivery.wait_ms),
        idempotency_key=delivery.idempotency_key,
        last_error=delivery.last_error,
    )


def is_passing(error: WeirError) -> bool:
    """Whether Redis did not answer, or refused this client: the API may still do the work."""
    return isinstance(error, BrokerUnavailable | Misconfigured)
