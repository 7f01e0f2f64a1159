"""The packed records that Python and the scripts exchange, each described once for both sides.

A *member* is a waiting message without its body: it travels from `ready` to a lease and back. It
starts with the sequence number, most significant byte first, so that Redis breaks ties of time by
order of arrival. A *body* holds the key, the idempotency key, the headers and the payload of a message.

State, promises and dead messages say their version (see `records`). The version of the state is also the
version of the whole queue: of its keys, members, leases and bodies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from struct import Struct

import orjson

from weir.broker.records import MARK, Record, lua_size, python_struct
from weir.model.durations import SECOND_MS
from weir.model.limits import MAX_BATCH, MAX_LEASE_MS, MAX_NAME_BYTES
from weir.model.message import DEFAULT_PRIORITY, NO_HEADERS, DeathReason, Enqueue, NewMessage
from weir.spec.ir import Ordering, QueueSpec
from weir.telemetry import lives
from weir.telemetry.events import CATALOGUE, QUEUE_COUNTERS
from weir.telemetry.streams import EVENT_LAYOUT

ID_SIZE = 16
BAND = 1 << 43
"""Distance between the scores of two priorities; every time in milliseconds is smaller."""

ORDERINGS = tuple(Ordering)

_LUA_FORMATS = {
    "MEMBER": lives.MEMBER,
    # sequence, attempts, enqueued, available, expires, priority: a member without its id; then the
    # ordering key
    "PLACE": ">I8I4I8I8I8I1",
    # unknown is written plus UNKNOWN_BIAS
    "READINGS": lives.READINGS,
    # flags (1: clocks run, 2: the body's readings are still to be subtracted, 4: attempts follow), since
    # when; scheduled, back-off, blocked, leased; paused, queue limit, environment limit, unasked, unknown
    # plus UNKNOWN_BIAS; then the attempts, after two bytes with their size, and the ordering key
    "WAIT": ">I1I6I6I6I6I6I6I6I6I6I6",
    "HANDED_OUT": lives.HANDED_OUT,
    # 2 (1 without origin, 0 in leases from before version 4 of the state), deadline, token, length of the
    # consumer's name; then the name, the member, HANDED_OUT and the origin
    "LEASE": ">I2I6c16I1",
    # the end of a body from where the message was first available; then its key and ORIGIN_END
    "ORIGIN": lives.ORIGIN,
    "ORIGIN_END": lives.ORIGIN_END,
    # id, priority (NO_PRIORITY: the queue's), deliver_at, delay, ttl, idempotency window (0: the queue's),
    # lengths of the two keys
    "ARRIVAL": ">c16I1I8I8I8I8I1I1",
    # how leases were settled (see `lua_settled`), when, how many; then their ids
    "SETTLED": ">c1I6I2",
    # the front of a member, as far as the priority; then the length of the error
    "HANDED": ">I8c16I4I8I8I8I1I2",
}


def _wide(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, "I8") for name in names)


_SPANS = _wide("max_age", "ttl", "max_depth", "max_attempts", "initial", "cap", "jitter", "lease")
PROMISES = Record(
    name="PROMISES",
    added=(
        (("ordering", "I1"), *_SPANS, *_wide("concurrency", "window")),
        (),
        (("priority_plus_1", "I1"),),
        (("life_rule", "I4"),),
        (("log_keep", "I4"),),
    ),
)
"""The promises that a queue was defined with. Version 1 only says its version. Version 2: the priority of
messages that name none, plus 1. Version 3: which lives are kept: 0 all, 1 none, else one in so many. Version
4: for how many seconds the log keeps messages; 0: the queue has no log."""

# Later counters belong to later versions of the state.
_FIRST_COUNTERS = QUEUE_COUNTERS[:8]
_MARKS = ("sequence", "top_available", "top_expires", "alarm_set", "touched")
_RETRIES = ("retrying", "uncounted")
_CLOCKS = (
    "clock_at",
    "asked_at",
    "paused_ms",
    "queue_limit_ms",
    "environment_limit_ms",
    "unasked_ms",
    "unknown_ms",
)
STATE = Record(
    name="STATE",
    added=(
        _wide(*_FIRST_COUNTERS, *_MARKS),
        (),
        _wide("reserved"),
        _wide("cancelled", *_RETRIES),
        _wide(*_CLOCKS),
        _wide("lives"),
    ),
)
"""Odometers; the last sequence number; latest available and expires of the members that `expiry` does not
list; the alarm that was set; when the queue was last noted as touched. Version 1 only says its version.
Version 2: how many messages the operations behind closed gates will bring. Version 3: the odometer of
cancelled messages; how many wait for a retry; 1 if an older program left too many to count them. Since then
bodies end with the message's place. Version 4: until when the clocks ran, when somebody last asked this queue
for messages, and for how long each reason to wait held; the last changes of reason follow the record. Since
then bodies and leases hold readings of the clocks. Version 5: the odometer of lives. Since then leases hold
what a life needs of the body, and `places` the attempts so far."""

DEAD = Record(
    name="DEAD",
    added=(
        (
            ("ident_size", "I2"),
            ("attempts", "I4"),
            ("max_attempts", "I4"),
            ("reason", "I1"),
            ("enqueued", "I8"),
            ("died", "I8"),
            ("priority", "I1"),
            ("error_size", "I2"),
        ),
        (),
    ),
)
"""A dead message; its queue's ident, the error and the body follow. Version 1 only says its version."""

RECORDS = (PROMISES, STATE, DEAD)
VERSIONS = {
    **{record.name.lower(): record.version for record in RECORDS},
    **{f"{EVENT_LAYOUT}{kind.name}": kind.version for kind in CATALOGUE},
}
"""Every layout that this program writes to Redis. Each shard knows the newest that was written there."""

ARRIVAL = python_struct(_LUA_FORMATS["ARRIVAL"])
HANDED = python_struct(_LUA_FORMATS["HANDED"])
FAILURE = Struct(">16s16sQII")
"""Id, token, delay plus one (0: none given), chance in 2^32, time of the handler plus one (0: not told)."""
_LUA_FAILURE = ">c16c16I8I4I4"
"""The same layout as scripts read it."""
HANDLER_TIME = Struct(">I")
"""The time of a handler plus one (0: not told), in an ack."""
UNCOUNTED = 1 << 52
"""Added to the delay of a failure that is not an attempt. No delay is so long."""
_BODY = Struct("<BBI")
"""Lengths of the key, the idempotency key and the headers; then these, the payload, the message's place and
the readings of the clocks.

The two highest bits of the headers' length say that the place follows, and that the readings do; bodies from
before versions 3 and 4 of the state lack them.
"""
PLACED, READ = 0x80, 0x40
"""These bits in the last byte of the headers' length."""
_FREED_LOCK = 16 + lua_size(_LUA_FORMATS["HANDED_OUT"]) + 16
"""The size of a lock whose head was freed: its id, HANDED_OUT of when, the id of the head before."""
UNKNOWN_BIAS = 1 << 44
"""Added to unknown time when it is packed: its reading is negative for a time before the clocks began."""
_PLACED_LENGTH, _READ_LENGTH = PLACED << 24, READ << 24
_PLACE_SIZE, _READINGS_SIZE = lua_size(_LUA_FORMATS["PLACE"]), lua_size(_LUA_FORMATS["READINGS"])
PLAIN_BODY = _BODY.pack(0, 0, _PLACED_LENGTH | _READ_LENGTH)
"""What stands before the payload in the body of a message without keys and headers."""
MEMBER = python_struct(_LUA_FORMATS["MEMBER"])
_END_SIZES = {0: 0, PLACED: _PLACE_SIZE, PLACED | READ: _PLACE_SIZE + _READINGS_SIZE}
"""How many bytes follow the payload, by the two bits."""
JITTER_SCALE = 1_000_000
ASK_MS = 1_000
"""A queue counts as unasked this long after the last ask."""
MAX_SHARE = 16
"""The messages of one call are shared among at most so many environments, or queues of one."""
MAX_VISITS = 64
"""So many queues one dequeue looks at, at most."""
MAX_BODY_BYTES = 65 << 20
"""The longest body that a script takes: the largest payload that the settings may allow, and its headers."""
MAX_REPLY_BYTES = 16 << 20
"""About so many bytes one dequeue hands out, at most; at least one message."""
SETTLED_MS = 60_000
"""For how long it is remembered how a lease was settled, unless `MOST_SETTLED` others follow sooner."""
MOST_SETTLED = 20_000
"""Of so many settlements at least a shard remembers the last ones, and of twice as many at most."""
LATE_MS = 2_000
"""A keeper that is longer behind than this is missed. It moves the shards on about twice a second."""
KEPT_MS = 60_000
"""For how long scripts that miss their keeper let no lease lapse. A queued settlement whose process was
killed is tried again within this, after 30 s."""
LOOK_MS = 250
"""While a lease that has ended may not lapse, its queue is looked at so often."""
VOID_GRANT = (1 << 32) - 1
"""Stands for a void operation where `close_gates` says how many messages may come."""
DEATH_REASONS = tuple(DeathReason)
"""A dead message stores the position of its reason here."""
NO_PRIORITY = 255


class EntryMode(StrEnum):
    """The entry of an enqueue call, as scripts read it; `gate_watch` acts on it."""

    OBEY_GATES = "0"
    PASS_GATES = "1"
    FOR_OPERATIONS = "2"
    NAMED_CALL = "3"


ENQUEUE_LETTERS: Mapping[Enqueue, str] = {
    Enqueue.ACCEPTED: "a",
    Enqueue.DUPLICATE: "d",
    Enqueue.KEY_REUSED: "k",
    Enqueue.FULL: "f",
    Enqueue.GATED: "g",
}
"""The answer of a script for one message. Call slots remember these letters, so they never change."""


def lua_entry() -> str:
    """Modes and letters of an enqueue call as constants of the scripts."""
    words = {mode.name: mode.value for mode in EntryMode}
    words |= {outcome.name: letter for outcome, letter in ENQUEUE_LETTERS.items()}
    return "".join(f"local {name} = '{value}'\n" for name, value in words.items())


def lua_mark() -> str:
    return f"local MARK = {MARK}\n"


def lua_default_priority() -> str:
    return f"local DEFAULT_PRIORITY = {DEFAULT_PRIORITY}\n"


def lua_ask_ms() -> str:
    return f"local ASK_MS = {ASK_MS}\n"


def lua_turns() -> str:
    return f"local MAX_SHARE, MAX_VISITS, MAX_REPLY_BYTES = {MAX_SHARE}, {MAX_VISITS}, {MAX_REPLY_BYTES}\n"


def lua_limits() -> str:
    """The bounds that scripts check themselves, because a client may send what it likes."""
    return (
        f"local MAX_BATCH, MAX_NAME, MAX_BODY, MAX_LEASE = "
        f"{MAX_BATCH}, {MAX_NAME_BYTES}, {MAX_BODY_BYTES}, {MAX_LEASE_MS}\n"
    )


def lua_settled() -> str:
    """Bounds of the memory of settlements; how each verb settles, by the letter of its answer."""
    return (
        f"local SETTLED_MS, MOST_SETTLED, ACKED = {SETTLED_MS}, {MOST_SETTLED}, 'a'\n"
        "local FAILED = {nack = {d = 'n', x = 'x'}, dead_letter = {d = 't'}}\n"
    )


def lua_lapse_bounds() -> str:
    return f"local LAPSES = {{late_ms = {LATE_MS}, kept_ms = {KEPT_MS}, look_ms = {LOOK_MS}}}\n"


def lua_void_grant() -> str:
    return f"local VOID_GRANT = {VOID_GRANT}\n"


def lua_death_reasons() -> str:
    codes = ", ".join(f"{reason} = {code}" for code, reason in enumerate(DEATH_REASONS))
    return f"local DIED = {{{codes}}}\n"


def lua_state_marks() -> str:
    """The part of the state that a queue without messages does not need."""
    return f"local STATE_MARKS = {{{', '.join(repr(name) for name in (*_MARKS, *_RETRIES, *_CLOCKS))}}}\n"


def lua_block() -> str:
    """The layouts as constants of the scripts."""
    constants = {
        **{name: f"'{layout}'" for name, layout in _LUA_FORMATS.items()},
        "FAILURE": f"'{_LUA_FAILURE}'",
        "UNCOUNTED": str(UNCOUNTED),
        "NO_PRIORITY": NO_PRIORITY,
        "PLACED": PLACED,
        "READ": READ,
        "UNKNOWN_BIAS": UNKNOWN_BIAS,
        "FREED_LOCK": _FREED_LOCK,
        "PLAIN_BODY": "'" + "".join(f"\\{byte}" for byte in PLAIN_BODY) + "'",
        "BAND": BAND,
        "JITTER_SCALE": JITTER_SCALE,
    }
    return "".join(f"local {name} = {value}\n" for name, value in constants.items())


_LIFE_RULES = {1: 0, 0: 1}
"""`life_rule` by `history`: 0 keeps all lives, also in promises of older versions, and 1 keeps none."""


def pack_promises(spec: QueueSpec) -> bytes:
    delivery, retention = spec.delivery, spec.retention
    return PROMISES.pack(
        ordering=ORDERINGS.index(spec.ordering),
        max_age=retention.message_age_ms,
        ttl=spec.message_ttl_ms or 0,
        max_depth=retention.max_depth or 0,
        max_attempts=delivery.max_attempts,
        initial=delivery.initial_backoff_ms,
        cap=delivery.max_backoff_ms,
        jitter=round(delivery.jitter * JITTER_SCALE),
        lease=delivery.lease_ms,
        concurrency=spec.concurrency or 0,
        window=spec.idempotency_window_ms,
        priority_plus_1=spec.priority + 1,
        life_rule=_LIFE_RULES.get(spec.history, spec.history),
        log_keep=(spec.log_ms or 0) // SECOND_MS,
    )


def odometers(packed: bytes) -> dict[str, int]:
    """The lifetime totals in a packed state of this version."""
    _, *values = STATE.struct.unpack(packed)
    totals = dict(zip(STATE.fields, values, strict=True))
    return {name: totals[name] for name in QUEUE_COUNTERS}


def id_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("-", ""))


def id_text(data: bytes) -> str:
    digits = data.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def pack_arrival(message: NewMessage) -> tuple[bytes, bytes]:
    """A new message as the enqueue script takes it: what the script reads, and the body.

    A plain message, with a payload and nothing else, is its id alone.
    """
    if message.key is not None or message.idempotency_key is not None or message.headers:
        return _pack_full_arrival(message)
    raw_id = bytes.fromhex(message.id.replace("-", ""))
    terms = _terms(message)
    if terms == _NO_TERMS:
        return raw_id, PLAIN_BODY + message.payload
    return ARRIVAL.pack(raw_id, *terms, 0, 0, 0), PLAIN_BODY + message.payload


_NO_TERMS = (NO_PRIORITY, 0, 0, 0)


def _terms(message: NewMessage) -> tuple[int, int, int, int]:
    """How urgent a message is, from when and for how long it may be handed out."""
    priority = NO_PRIORITY if message.priority is None else message.priority
    return priority, message.deliver_at_ms or 0, message.delay_ms or 0, message.ttl_ms or 0


def _pack_full_arrival(message: NewMessage) -> tuple[bytes, bytes]:
    key = b"" if message.key is None else message.key.encode()
    idempotency = b"" if message.idempotency_key is None else message.idempotency_key.encode()
    headers = orjson.dumps(dict(message.headers)) if message.headers else b""
    window_ms = message.idempotency_window_ms or 0
    head = ARRIVAL.pack(id_bytes(message.id), *_terms(message), window_ms, len(key), len(idempotency))
    digest = hashlib.blake2b(message.payload, digest_size=16).digest() if idempotency else b""
    body = _BODY.pack(len(key), len(idempotency), len(headers) | _PLACED_LENGTH | _READ_LENGTH)
    return (
        b"".join((head, key, idempotency, digest)),
        b"".join((body, key, idempotency, headers, message.payload)),
    )


def unpack_body(data: bytes, start: int) -> tuple[str | None, str | None, Mapping[str, str], bytes]:
    """Key, idempotency key, headers and payload of the body that begins at `start`."""
    key_size, idempotency_size, headers_size = _BODY.unpack_from(data, start)
    end = len(data)
    if headers_size >= _PLACED_LENGTH:
        headers_size -= _PLACED_LENGTH
        end -= _PLACE_SIZE
    if headers_size >= _READ_LENGTH:
        headers_size -= _READ_LENGTH
        end -= _READINGS_SIZE
    start += _BODY.size
    if not (key_size or idempotency_size or headers_size):
        return None, None, NO_HEADERS, data[start:end]
    idempotency_at = start + key_size
    headers_at = idempotency_at + idempotency_size
    payload_at = headers_at + headers_size
    return (
        data[start:idempotency_at].decode() if key_size else None,
        data[idempotency_at:headers_at].decode() if idempotency_size else None,
        orjson.loads(data[headers_at:payload_at]) if headers_size else NO_HEADERS,
        data[payload_at:end],
    )


def unpack_front(data: bytes) -> tuple[str | None, str | None, Mapping[str, str], bytes]:
    """The same parts of a body that was cut within its payload, and so lacks its end."""
    return unpack_body(data + bytes(_END_SIZES[data[_BODY.size - 1] & (PLACED | READ)]), 0)
