"""Which shards of the broker this process can reach, as its last calls found them."""

from __future__ import annotations

BROKER_ANSWER_S = 0.75
"""After this long without an answer a shard counts as out of reach, and what was asked of it is queued."""


class Reach:
    """A shard is out of reach from a failed call on, until the keeper has reached it again."""

    def __init__(self) -> None:
        self._lost: set[int] = set()

    def lost(self, shard: int) -> None:
        self._lost.add(shard)

    def regained(self, shard: int) -> None:
        self._lost.discard(shard)

    def reachable(self, shard: int) -> bool:
        return shard not in self._lost
