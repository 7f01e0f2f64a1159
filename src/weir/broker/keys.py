"""The one place where Redis keys are spelled, for Python and for the scripts alike.

    weir:epoch                           string  the epoch of the data in this Redis; gone after FLUSHALL
    weir:shards                          string  over how many shards its environments are spread
    weir:{shard-3}:epoch:EPOCH           string  the same, as scripts see it
    weir:{shard-3}:active                zset    environments that may be served -> their turn
    weir:{shard-3}:turn                  string  the last turn that was given
    weir:{shard-3}:timers                zset    queues -> when time alone next changes them, or earlier
    weir:{shard-3}:touched               zset    non-empty queues, and queues that changed while metrics were
                                                 off -> when they last changed, about to the second
    weir:{shard-3}:outbox                zset    ids of dead messages -> when they died
    weir:{shard-3}:dead                  hash    id -> packed dead message
    weir:{shard-3}:calls                 hash    slot of a named call -> packed time, id and outcome
    weir:{shard-3}:settled               hash    n: leases in it; token -> how leases with this token were
                                                 settled, when and which: see `SETTLED`
    weir:{shard-3}:settled_before        hash    the same, of the time before `settled` was full
    weir:{shard-3}:retired               hash    forgotten queue -> its odometers, should it come back
    weir:{shard-3}:direct                string  until when enqueue may go direct; absent: always
    weir:{shard-3}:lapses                hash    until_ms: leases that ended by then may lapse;
                                                 missed_ms: when a script first missed its keeper
    weir:{shard-3}:gate_times            zset    closed gates (queue, operation, partition) -> since when
    weir:{shard-3}:layouts               hash    layout -> newest version that was announced here
    weir:{shard-3}:metrics_switch        hash    whether metrics are off, since when, who and why; see
                                                 `telemetry.switch`
    weir:{shard-3}:never                 nothing that ever exists: each call declares it, see `call.lua`
    weir:{shard-3}:voided                zset    void operations, which never run -> since when
    weir:{shard-3}:wake                  channel queues or environments that became servable
    weir:{shard-3}:op:SLOT               string  number and reply of the last call in a slot
    weir:{shard-3}:k:ENV ID              string  r result, p progress or c cancelled, of a message, for a day
    weir:{shard-3}:g:ENV GROUP           set     members of a group that are done, for 30 days
    weir:{shard-3}:e:ENV                 hash    limit, depth, running of an environment; limited, asked:
                                                 when its limit was reached, and when nobody asked
    weir:{shard-3}:e:ENV:active          zset    its queues that may be served -> their turn
    weir:{shard-3}:e:ENV:queues          zset    its defined queues, all with score 0
    weir:{shard-3}:q:QUEUE               hash    c: packed promises, state: packed state, paused, popped;
                                                 upgraded: the last sequence number of an older program;
                                                 index: how far its messages are indexed;
                                                 largest: no body in it is longer; absent: unknown;
                                                 s: the state of version 0, until the queue next changes
    weir:{shard-3}:q:QUEUE:ready         zset    members that are available -> priority band + time
    weir:{shard-3}:q:QUEUE:heads         zset    ordered queues: the members that may be handed out
    weir:{shard-3}:q:QUEUE:lanes         zset    ordered queues: key + member of messages behind a head
    weir:{shard-3}:q:QUEUE:locks         hash    ordered queues: keys that have a head -> its id; if it waited
                                                 behind another: when it became the head, the readings
                                                 then, and the id of the head before
    weir:{shard-3}:q:QUEUE:delayed       zset    members that wait for their time or a retry -> time
    weir:{shard-3}:q:QUEUE:expiry        zset    members whose expiry is out of line with `ready` -> time
    weir:{shard-3}:q:QUEUE:leases        hash    id -> packed lease and member
    weir:{shard-3}:q:QUEUE:deadlines     zset    id -> end of its lease
    weir:{shard-3}:q:QUEUE:bodies        hash    id -> packed body and first place, from enqueue to the end
    weir:{shard-3}:q:QUEUE:places        hash    id -> packed place, wait and attempts, of messages that
                                                 moved since enqueue
    weir:{shard-3}:q:QUEUE:revoked       zset    id + token of leases whose message was cancelled -> their end
    weir:{shard-3}:q:QUEUE:errors        hash    id -> last error
    weir:{shard-3}:q:QUEUE:seen          hash    idempotency key -> packed answer
    weir:{shard-3}:q:QUEUE:seen_until    zset    idempotency key -> end of its window
    weir:{shard-3}:q:QUEUE:gates         hash    partitions whose gate is closed -> 1
    weir:{shard-3}:q:QUEUE:gate:KEY      hash    operations that hold one gate -> messages put in / in all

The metric stream of a shard is spelled in `telemetry.streams` and carries the same hash tag, so a
script never leaves its cluster slot. ENV and QUEUE are idents: the three or four names, each after one
byte with its length. Names may hold any character; since the lengths come first, no two lists of names
share an ident and none runs into what follows it. KEY, an ordering key, ends its Redis key.
"""

from __future__ import annotations

from functools import lru_cache

from weir.model.names import EnvironmentRef, QueueRef
from weir.telemetry.streams import LAYOUTS, SWITCH, hash_tag

EPOCH = b"weir:epoch"
EVERY_WAKE = f"weir:{hash_tag(0).replace('0', '*')}:wake".encode()
"""A pattern that matches the wake-up channel of every shard."""

SHARD_PARTS = (
    "active",
    "turn",
    "timers",
    "touched",
    "outbox",
    "dead",
    "calls",
    "retired",
    "settled",
    "settled_before",
    "direct",
    "lapses",
    "gate_times",
    LAYOUTS,
    SWITCH,
    "voided",
    "never",
    "wake",
)
ENVIRONMENT_PARTS = ("active", "queues")
QUEUE_PARTS = (
    "ready",
    "heads",
    "lanes",
    "locks",
    "delayed",
    "expiry",
    "leases",
    "deadlines",
    "bodies",
    "places",
    "revoked",
    "errors",
    "seen",
    "seen_until",
    "gates",
    "gate",
)


@lru_cache(maxsize=4_096)
def prefix(shard: int) -> bytes:
    """What every key of a shard starts with."""
    return f"weir:{hash_tag(shard)}:".encode()


def shard_key(shard: int, part: str) -> bytes:
    if part not in SHARD_PARTS:
        raise KeyError(part)
    return prefix(shard) + part.encode()


def epoch_key(shard: int, epoch: str) -> bytes:
    """Exists as long as the shard has the data of this epoch."""
    return prefix(shard) + b"epoch:" + epoch.encode()


@lru_cache(maxsize=65_536)
def slot_key(shard: int, slot: bytes) -> bytes:
    """Where the reply of a client's last call is kept, so that a retry answers the same."""
    return prefix(shard) + b"op:" + slot


def _counted(*names: str) -> bytes:
    return b"".join(bytes((len(data),)) + data for data in (name.encode() for name in names))


@lru_cache(maxsize=65_536)
def environment_ident(environment: EnvironmentRef) -> bytes:
    return _counted(*environment.names)


@lru_cache(maxsize=65_536)
def queue_ident(queue: QueueRef) -> bytes:
    return _counted(*queue.names)


@lru_cache(maxsize=65_536)
def queue_of(ident: bytes) -> QueueRef:
    """The queue that an ident names."""
    names, start = [], 0
    while start < len(ident):
        end = start + 1 + ident[start]
        names.append(ident[start + 1 : end].decode())
        start = end
    organization, project, environment, queue = names
    return QueueRef(organization=organization, project=project, environment=environment, queue=queue)


def environment_part(ident: bytes) -> bytes:
    """The ident of the environment that a queue's ident starts with."""
    end = 0
    for _ in range(3):
        end += 1 + ident[end]
    return ident[:end]


def _suffixes(parts: tuple[str, ...], *, lead: str = "") -> str:
    return "{" + ", ".join(f"{part} = '{lead}{part}'" for part in parts) + "}"


def lua_block() -> str:
    """The same spelling for the scripts: `shard_key.timers`, `queue_keys(ident).ready` and so on."""
    return f"""
local function key_table(base, suffixes)
  return setmetatable({{base = base}}, {{__index = function(known, part)
    local key = base .. suffixes[part]
    rawset(known, part, key)
    return key
  end}})
end
local queue_suffixes = {_suffixes(QUEUE_PARTS, lead=":")}
local environment_suffixes = {_suffixes(ENVIRONMENT_PARTS, lead=":")}
local shard_key = key_table(PREFIX, {_suffixes(SHARD_PARTS)})
local function queue_keys(ident)
  return key_table(PREFIX .. 'q:' .. ident, queue_suffixes)
end
local function gate_key(keys, partition)
  return keys.gate .. ':' .. partition
end
local function kept_key(environment, id)
  return PREFIX .. 'k:' .. environment .. id
end
local function members_key(environment, group)
  return PREFIX .. 'g:' .. environment .. group
end
local function environment_keys(ident)
  return key_table(PREFIX .. 'e:' .. ident, environment_suffixes)
end
"""
