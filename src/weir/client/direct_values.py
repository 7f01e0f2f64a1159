"""Messages, leases and errors of the broker in the words of the client, and back."""

from __future__ import annotations

from datetime import timedelta

from weir.client.direct_opening import DirectOptions
from weir.client.encoding import encode
from weir.client.errors import ApiError
from weir.client.values import MadeKey, OutgoingMessage, ReceivedMessage, time_of, unix_ms
from weir.errors import BrokerUnavailable, Misconfigured, WeirError
from weir.model.durations import to_ms
from weir.model.ids import MessageId, new_message_id
from weir.model.message import NO_HEADERS, Delivery, NewMessage, check_message
from weir.model.nesting import check_depth, may_be_deep
from weir.model.problem_documents import problem

BINARY = "application/octet-stream"


def to_new_message(message: OutgoingMessage, options: DirectOptions) -> NewMessage:
    """The message as the broker takes it; WeirError if it is over a limit of the API."""
    payload, headers, key = message.payload, message.headers or NO_HEADERS, message.idempotency_key
    if isinstance(payload, bytes | bytearray | memoryview):
        data = bytes(payload)
        headers = {"content-type": BINARY, **headers}
    else:
        data = encode(payload)
        if may_be_deep(data, options.max_depth):
            check_depth(payload, options.max_depth)
    # A key that the client made is for its retries. Here the name of the call does that work, at less cost.
    made = isinstance(key, MadeKey)
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
    return new


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
        wait=timedelta(milliseconds=delivery.wait_ms),
        idempotency_key=delivery.idempotency_key,
        last_error=delivery.last_error,
    )


def to_api_error(error: WeirError) -> ApiError:
    """The error that the API would have answered with."""
    document = problem(error)
    after = document.get("retry_after")
    return ApiError(error.status, document, retry_after=None if after is None else timedelta(seconds=after))


def is_passing(error: WeirError) -> bool:
    """Whether Redis did not answer, or refused this client; the API may do better."""
    return isinstance(error, BrokerUnavailable | Misconfigured)
