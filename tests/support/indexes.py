"""Looks whether the keys of a queue in Redis fit together, and time finds every message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from weir.broker import keys, layout
from weir.model.names import QueueRef
from weir.model.shards import shard_of

Execute = Callable[..., Awaitable[Any]]


async def check_indexes(execute: Execute, queue: QueueRef, *, shards: int) -> None:
    """Fail if a message of the queue is in no index or in a wrong one, or if its end would be found late."""
    shard, ident = shard_of(queue.scope, shards=shards), keys.queue_ident(queue)
    base = keys.prefix(shard) + b"q:" + ident

    async def scores(part: bytes) -> dict[bytes, float]:
        found = await execute("ZRANGE", base + b":" + part, 0, -1, "WITHSCORES")
        return {member: float(score) for member, score in zip(found[::2], found[1::2], strict=True)}

    ready, delayed, expiry = [await scores(part) for part in (b"ready", b"delayed", b"expiry")]
    heads, lanes, deadlines = [await scores(part) for part in (b"heads", b"lanes", b"deadlines")]
    leases = set(await execute("HKEYS", base + b":leases"))
    bodies = sorted(await execute("HKEYS", base + b":bodies"))
    assert bodies == sorted([*map(id_of, [*ready, *delayed]), *leases])
    assert set(deadlines) == leases
    assert set(expiry) <= {*ready, *delayed}
    assert set(delayed) <= set(expiry)
    if heads or lanes:
        behind = [entry[2 + int.from_bytes(entry[:2], "big") :] for entry in lanes]
        assert sorted([*heads, *behind]) == sorted(ready)
    ends = [expires_of(member) for member in (*ready, *delayed)]
    due = min([*ends, *delayed.values(), *deadlines.values()], default=None)
    if due is not None:
        timer = await execute("ZSCORE", keys.shard_key(shard, "timers"), ident)
        assert timer is not None
        assert float(timer) <= due
    for band in unlisted_bands(ready, expiry):
        assert band == sorted(band), "a message that is not listed stands behind one that expires later"


def unlisted_bands(ready: dict[bytes, float], expiry: Iterable[bytes]) -> list[list[int]]:
    """When the messages that `expiry` does not list expire, in the order in which they stand in each band."""
    listed, bands = set(expiry), defaultdict(list)
    for member, score in ready.items():
        if member not in listed:
            bands[score // layout.BAND].append(expires_of(member))
    return list(bands.values())


def id_of(member: bytes) -> bytes:
    return member[8:24]


def expires_of(member: bytes) -> int:
    expires: int = layout.MEMBER.unpack_from(member)[5]
    return expires
