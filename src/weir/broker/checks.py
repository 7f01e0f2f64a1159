"""What may come in: every broker refuses the same input with the same words, before it changes anything."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from weir.errors import InvalidInput, TooLarge
from weir.model.limits import (
    MAX_BATCH,
    MAX_COUNT,
    MAX_DELAY_MS,
    MAX_HEADER_BYTES,
    MAX_LEASE_MS,
    MAX_PAYLOAD_BYTES,
    MAX_PRIORITY,
    MAX_SPAN_MS,
    MAX_TIME_MS,
    MAX_WAIT_MS,
)
from weir.model.message import Failure, LeaseRef, NewMessage
from weir.model.names import check_name
from weir.spec.ir import QueueSpec

_CANONICAL_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check_number(value: int, *, what: str, least: int, most: int) -> int:
    """Return `value` if it is an integer from `least` to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidInput(f"{what} is {value!r:.40}; expected an integer from {least} to {most}")
    return value


def check_message_id(text: str) -> None:
    """Ids come out as they went in, so only the canonical form is taken."""
    if not isinstance(text, str) or _CANONICAL_ID.fullmatch(text) is None:
        raise InvalidInput(f"`{text!s:.64}` is not a message id; expected a UUID in lower case")


def check_batch(items: Sequence[object]) -> None:
    if len(items) > MAX_BATCH:
        raise TooLarge(f"a call with {len(items)} messages; send at most {MAX_BATCH} at a time")


def check_messages(messages: Sequence[NewMessage], *, max_payload: int = MAX_PAYLOAD_BYTES) -> None:
    check_batch(messages)
    for message in messages:
        check_message(message, max_payload=max_payload)


def check_message(message: NewMessage, *, max_payload: int = MAX_PAYLOAD_BYTES) -> None:
    """The common case, a plain message within bounds, is decided by a few comparisons."""
    payload = message.payload
    if not isinstance(payload, bytes):
        raise InvalidInput(f"a payload is {type(payload).__name__}; expected bytes")
    if len(payload) > max_payload:
        raise TooLarge(f"a payload has {len(payload)} bytes; at most {max_payload} are allowed")
    priority = message.priority
    if priority is not None and (priority.__class__ is not int or not 0 <= priority <= MAX_PRIORITY):
        check_number(priority, what="priority", least=0, most=MAX_PRIORITY)
    if message.headers:
        _check_headers(message)
    if message.key is not None:
        check_name(message.key, what="message key")
    if message.idempotency_key is not None:
        check_name(message.idempotency_key, what="idempotency key")
    if message.deliver_at_ms is not None:
        check_number(message.deliver_at_ms, what="deliver_at_ms", least=0, most=MAX_TIME_MS)
    if message.delay_ms is not None:
        check_number(message.delay_ms, what="delay_ms", least=0, most=MAX_DELAY_MS)
        if message.deliver_at_ms is not None:
            raise InvalidInput("a message has `deliver_at_ms` and `delay_ms`; give one of them")
    if message.ttl_ms is not None:
        check_number(message.ttl_ms, what="ttl_ms", least=1, most=MAX_SPAN_MS)
    check_message_id(message.id)


def _check_headers(message: NewMessage) -> None:
    size = 0
    for name, value in message.headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidInput(f"the header {name!r:.40} is not text; send names and values as text")
        try:
            size += len(name.encode()) + len(value.encode())
        except UnicodeEncodeError:
            raise InvalidInput(
                f"the header {name!r:.40} holds a lone surrogate; send valid Unicode text"
            ) from None
    if size > MAX_HEADER_BYTES:
        raise TooLarge(f"the headers have {size} bytes; at most {MAX_HEADER_BYTES} are allowed")


def headers_fit(headers: Mapping[str, str]) -> bool:
    """Whether headers that were taken before, and some more, still keep to the limit."""
    size = sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())
    return size <= MAX_HEADER_BYTES


def check_dequeue(*, consumer: str, limit: int, lease_ms: int | None, wait_ms: int) -> None:
    check_name(consumer, what="consumer")
    check_number(limit, what="limit", least=1, most=MAX_BATCH)
    check_number(wait_ms, what="wait_ms", least=0, most=MAX_WAIT_MS)
    if lease_ms is not None:
        check_lease(lease_ms)


def check_lease(lease_ms: int) -> None:
    check_number(lease_ms, what="lease_ms", least=1, most=MAX_LEASE_MS)


def check_leases(leases: Sequence[LeaseRef]) -> None:
    check_batch(leases)
    for lease in leases:
        check_message_id(lease.message_id)


def check_failures(failures: Sequence[Failure]) -> None:
    check_batch(failures)
    for failure in failures:
        check_message_id(failure.lease.message_id)
        if failure.delay_ms is not None:
            check_number(failure.delay_ms, what="delay_ms", least=0, most=MAX_DELAY_MS)


def check_shard(shard: int, *, shards: int) -> None:
    check_number(shard, what="shard", least=0, most=shards - 1)


def check_concurrency(concurrency: int | None) -> None:
    if concurrency is not None:
        check_number(concurrency, what="a concurrency limit", least=1, most=MAX_COUNT)


def check_spec(spec: QueueSpec) -> None:
    """The numbers of a spec that a broker acts on."""
    delivery, retention = spec.delivery, spec.retention
    check_concurrency(spec.concurrency)
    check_number(retention.message_age_ms, what="max_age_ms", least=1, most=MAX_SPAN_MS)
    if retention.max_depth is not None:
        check_number(retention.max_depth, what="max_depth", least=1, most=MAX_COUNT)
    check_number(delivery.max_attempts, what="max_attempts", least=1, most=MAX_COUNT)
    check_number(delivery.initial_backoff_ms, what="initial_backoff_ms", least=0, most=MAX_DELAY_MS)
    check_number(delivery.max_backoff_ms, what="max_backoff_ms", least=0, most=MAX_DELAY_MS)
    check_lease(delivery.lease_ms)
    if spec.message_ttl_ms is not None:
        check_number(spec.message_ttl_ms, what="message_ttl_ms", least=1, most=MAX_SPAN_MS)
    check_number(spec.idempotency_window_ms, what="idempotency_window_ms", least=0, most=MAX_SPAN_MS)
    if not isinstance(delivery.jitter, int | float) or not 0 <= delivery.jitter <= 1:
        raise InvalidInput(f"jitter is {delivery.jitter!r:.40}; expected a number from 0 to 1")
