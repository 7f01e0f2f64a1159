"""The packed records that Python and the scripts exchange, each described once for both sides.

A *member* is a waiting message without its body: it travels from `ready` to a lease and back. It
starts with the sequence number, most significant byte first, so that Redis breaks ties of time by
order of arrival. A *body* is opaque to the scripts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from struct import Struct

import orjson

from weir.model.message import DEFAULT_PRIORITY, NO_HEADERS, NewMessage
from weir.spec.ir import Ordering, QueueSpec
from weir.telemetry.events import QUEUE_COUNTERS

BAND = 1 << 43
"""Distance between the scores of two priorities; every time in milliseconds is smaller."""

ORDERINGS = tuple(Ordering)

_LUA_FORMATS = {
    # sequence, id, attempts, enqueued, available, expires, priority; then the ordering key
    "MEMBER": ">I8c16I4I8I8I8I1",
    # deadline, token, length of the consumer's name; then the name and the member
    "LEASE": ">I8c16I1",
    # ordering, max_age, ttl, max_depth, max_attempts, initial, cap, jitter, lease, concurrency, window
    "PROMISES": ">I1I8I8I8I8I8I8I8I8I8I8",
    # odometers, sequence, latest available and expires of the members that `expiry` does not list, the
    # alarm that was set, when the queue was last noted as touched
    "STATE": ">" + "I8" * (len(QUEUE_COUNTERS) + 5),
    # id, priority, deliver_at, ttl, length of the key, length of the idempotency key
    "ARRIVAL": ">c16I1I8I8I1I1",
    # the front of a member, as far as the priority; then the length of the error
    "HANDED": ">I8c16I4I8I8I8I1I2",
    # length of the ident, attempts, max_attempts, reason, enqueued, died, priority, length of the error
    "DEAD": ">I2I4I4I1I8I8I1I2",
}
_PYTHON_CODES = {"I1": "B", "I2": "H", "I4": "I", "I8": "Q", "c16": "16s"}


def _struct(name: str) -> Struct:
    layout = _LUA_FORMATS[name]
    for lua, python in _PYTHON_CODES.items():
        layout = layout.replace(lua, python)
    return Struct(layout)


PROMISES = _struct("PROMISES")
STATE = _struct("STATE")
ARRIVAL = _struct("ARRIVAL")
HANDED = _struct("HANDED")
DEAD = _struct("DEAD")
FAILURE = Struct(">16s16sQI")
"""Id, token, delay plus one (0: none given), chance in 2^32; the scripts read it as `>c16c16I8I4`."""
_BODY = Struct("<BBI")
"""Lengths of the key, the idempotency key and the headers; then these and the payload."""
_PLAIN_BODY = _BODY.pack(0, 0, 0)
JITTER_SCALE = 1_000_000


def lua_block() -> str:
    """The layouts as constants of the scripts."""
    constants = {
        **{name: f"'{layout}'" for name, layout in _LUA_FORMATS.items()},
        "FAILURE": "'>c16c16I8I4'",
        "DEFAULT_PRIORITY": DEFAULT_PRIORITY,
        "BAND": BAND,
        "JITTER_SCALE": JITTER_SCALE,
    }
    return "".join(f"local {name} = {value}\n" for name, value in constants.items())


def pack_promises(spec: QueueSpec) -> bytes:
    delivery, retention = spec.delivery, spec.retention
    return PROMISES.pack(
        ORDERINGS.index(spec.ordering),
        retention.max_age_ms,
        spec.message_ttl_ms or 0,
        retention.max_depth or 0,
        delivery.max_attempts,
        delivery.initial_backoff_ms,
        delivery.max_backoff_ms,
        round(delivery.jitter * JITTER_SCALE),
        delivery.lease_ms,
        spec.concurrency or 0,
        spec.idempotency_window_ms,
    )


def id_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("-", ""))


def id_text(data: bytes) -> str:
    digits = data.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def pack_arrival(message: NewMessage) -> tuple[bytes, bytes]:
    """A new message as the enqueue script takes it: what the script reads, and the body.

    A plain message, of default priority and nothing else, is its id alone.
    """
    if message.key is not None or message.idempotency_key is not None or message.headers:
        return _pack_full_arrival(message)
    raw_id = bytes.fromhex(message.id.replace("-", ""))
    if message.priority == DEFAULT_PRIORITY and message.deliver_at_ms is None and message.ttl_ms is None:
        return raw_id, _PLAIN_BODY + message.payload
    head = ARRIVAL.pack(raw_id, message.priority, message.deliver_at_ms or 0, message.ttl_ms or 0, 0, 0)
    return head, _PLAIN_BODY + message.payload


def _pack_full_arrival(message: NewMessage) -> tuple[bytes, bytes]:
    key = (message.key or "").encode()
    idempotency = (message.idempotency_key or "").encode()
    headers = orjson.dumps(dict(message.headers)) if message.headers else b""
    head = ARRIVAL.pack(
        id_bytes(message.id),
        message.priority,
        message.deliver_at_ms or 0,
        message.ttl_ms or 0,
        len(key),
        len(idempotency),
    )
    digest = hashlib.blake2b(message.payload, digest_size=16).digest() if idempotency else b""
    body = _BODY.pack(len(key), len(idempotency), len(headers))
    return (
        b"".join((head, key, idempotency, digest)),
        b"".join((body, key, idempotency, headers, message.payload)),
    )


def unpack_body(data: bytes, start: int) -> tuple[str | None, str | None, Mapping[str, str], bytes]:
    """Key, idempotency key, headers and payload of the body that begins at `start`."""
    key_size, idempotency_size, headers_size = _BODY.unpack_from(data, start)
    start += _BODY.size
    if not (key_size or idempotency_size or headers_size):
        return None, None, NO_HEADERS, data[start:]
    idempotency_at = start + key_size
    headers_at = idempotency_at + idempotency_size
    payload_at = headers_at + headers_size
    return (
        data[start:idempotency_at].decode() if key_size else None,
        data[idempotency_at:headers_at].decode() if idempotency_size else None,
        orjson.loads(data[headers_at:payload_at]) if headers_size else NO_HEADERS,
        data[payload_at:],
    )
