"""Finds the shard of an environment, by a jump consistent hash over its three names."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache

from weir.errors import Misconfigured
from weir.model.names import EnvironmentRef, QueueRef


def jump_hash(key: int, buckets: int) -> int:
    """Lamping and Veach's jump consistent hash of a 64-bit key into `buckets` buckets."""
    if buckets < 1:
        raise ValueError("there must be at least one bucket")
    bucket, candidate = -1, 0
    while candidate < buckets:
        bucket = candidate
        key = (key * 2862933555777941757 + 1) & 0xFFFFFFFFFFFFFFFF
        candidate = int((bucket + 1) * (float(1 << 31) / float((key >> 33) + 1)))
    return bucket


def text_key(*parts: str) -> int:
    """A 64-bit key of several texts. Their lengths are hashed too, so `ab, c` and `a, bc` differ."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(4, "little"))
        digest.update(data)
    return int.from_bytes(digest.digest(), "little")


def shard_of(environment: EnvironmentRef, *, shards: int) -> int:
    """The shard of an environment; all Redis keys of its queues carry the hash tag of that shard."""
    key = text_key(*environment.names)
    return jump_hash(key, shards)


def shard_finder(shards: int) -> Callable[[QueueRef], int]:
    """Finds the shard of a queue, and remembers it: hashing names is costly in a hot loop."""

    @lru_cache(maxsize=65_536)
    def find(queue: QueueRef) -> int:
        return shard_of(queue.scope, shards=shards)

    return find


def wrong_shards(written: int | None, *, configured: int) -> list[str]:
    """What is wrong if the stores were begun with another number of shards; None was not written yet.

    With another number, environments are looked for in shards where their messages are not.
    """
    if written in (None, configured):
        return []
    return [
        f"the messages of this installation are spread over {written} shards, and `WEIR_SHARDS` is "
        f"{configured} here; set it to {written}. For another number, let all queues run empty, stop every "
        "process, and start with an empty Redis and `weir serve --new-epoch`"
    ]


def require_shards(written: int | None, *, configured: int) -> None:
    """Refuse another number of shards than the stores were begun with."""
    for problem in wrong_shards(written, configured=configured):
        raise Misconfigured(problem)
