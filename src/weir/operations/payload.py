"""Operations as bytes: a JSON head with everything but the payloads, then the payloads as they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from weir.errors import InvalidInput
from weir.model.ids import MessageId, NamedCall
from weir.model.message import Failure, LeaseRef, NewMessage, Verb
from weir.model.names import QueueRef

_HEAD = 4
_OPTIONAL = (
    "priority",
    "deliver_at_ms",
    "delay_ms",
    "ttl_ms",
    "idempotency_key",
    "idempotency_window_ms",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """Messages of one partition; their ids are fixed here, so every attempt pushes the same ids."""

    messages: tuple[NewMessage, ...]
    call: NamedCall | None = None
    """A direct attempt whose outcome is unknown: it may have taken effect already."""
    places: tuple[int, ...] = ()
    """Where each message stood in that call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """Acks or nacks of leases; `verb` is the broker's."""

    verb: Verb
    failures: tuple[Failure, ...]


def encode_push(push: Push) -> bytes:
    head: dict[str, Any] = {"messages": [_message_head(message) for message in push.messages]}
    if push.call is not None:
        head["call"] = [push.call.slot, push.call.id, *push.places]
    return _frame(head, [message.payload for message in push.messages])


def decode_push(data: bytes) -> Push:
    head, body = _unframe(data)
    try:
        messages, at = [], 0
        for entry in head["messages"]:
            size = entry["size"]
            messages.append(_message(entry, body[at : at + size]))
            at += size
        call = head.get("call")
        if not call:
            return Push(messages=tuple(messages))
        slot, call_id, *places = call
        return Push(messages=tuple(messages), call=NamedCall(slot=slot, id=call_id), places=tuple(places))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(error) from None


def first_messages(data: bytes, count: int) -> bytes:
    """The push with only its first messages: its queue has no room for the others."""
    push = decode_push(data)
    return encode_push(replace(push, messages=push.messages[:count], places=push.places[:count]))


def encode_settle(settle: Settle) -> bytes:
    rows = [
        [
            lease.queue.organization,
            lease.queue.project,
            lease.queue.environment,
            lease.queue.queue,
            lease.message_id,
            lease.token,
            failure.error,
            failure.delay_ms,
            # Written only if there is something, so that older programs can read all other rows.
            *_rest(failure),
        ]
        for failure in settle.failures
        for lease in (failure.lease,)
    ]
    # Beside the rows, where older programs do not look.
    handlers = [failure.lease.handler_ms for failure in settle.failures]
    told = {} if set(handlers) == {None} else {"handlers_ms": handlers}
    return _frame({"verb": settle.verb.value, "leases": rows, **told}, [])


def decode_settle(data: bytes) -> Settle:
    head, _ = _unframe(data)
    try:
        rows = head["leases"]
        handlers = head.get("handlers_ms", [None] * len(rows))
        failures = tuple(_failure(row, handler) for row, handler in zip(rows, handlers, strict=True))
        return Settle(verb=Verb(head["verb"]), failures=failures)
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(error) from None


def _message_head(message: NewMessage) -> dict[str, Any]:
    head: dict[str, Any] = {"id": message.id, "size": len(message.payload)}
    if message.headers:
        head["headers"] = dict(message.headers)
    if message.key is not None:
        head["key"] = message.key
    for name in _OPTIONAL:
        if (value := getattr(message, name)) is not None:
            head[name] = value
    return head


def _message(head: dict[str, Any], payload: bytes) -> NewMessage:
    return NewMessage(
        id=MessageId(head["id"]),
        payload=payload,
        headers=head.get("headers", {}),
        key=head.get("key"),
        priority=head.get("priority"),
        deliver_at_ms=head.get("deliver_at_ms"),
        delay_ms=head.get("delay_ms"),
        ttl_ms=head.get("ttl_ms"),
        idempotency_key=head.get("idempotency_key"),
        idempotency_window_ms=head.get("idempotency_window_ms"),
    )


def _failure(row: Sequence[Any], handler_ms: int | None) -> Failure:
    organization, project, environment, queue, message_id, token, error, delay_ms, *rest = row
    ref = QueueRef(organization=organization, project=project, environment=environment, queue=queue)
    lease = LeaseRef(queue=ref, message_id=MessageId(message_id), token=token, handler_ms=handler_ms)
    result, uncounted = rest or (None, False)
    kept = None if result is None else result.encode()
    return Failure(lease=lease, error=error, delay_ms=delay_ms, uncounted=uncounted, result=kept)


def _rest(failure: Failure) -> tuple[str | None, bool] | tuple[()]:
    if failure.result is None and not failure.uncounted:
        return ()
    return (None if failure.result is None else failure.result.decode(), failure.uncounted)


def _frame(head: dict[str, Any], bodies: Sequence[bytes]) -> bytes:
    text = orjson.dumps(head)
    return b"".join((len(text).to_bytes(_HEAD, "big"), text, *bodies))


def _unframe(data: bytes) -> tuple[dict[str, Any], bytes]:
    end = _HEAD + int.from_bytes(data[:_HEAD], "big")
    try:
        head = orjson.loads(data[_HEAD:end])
    except orjson.JSONDecodeError as error:
        raise _unreadable(error) from None
    if not isinstance(head, dict):
        raise _unreadable(TypeError("the head is not an object"))
    return head, data[end:]


def _unreadable(error: Exception) -> InvalidInput:
    return InvalidInput(f"the payload of the operation cannot be read ({error}); it cannot be executed")
