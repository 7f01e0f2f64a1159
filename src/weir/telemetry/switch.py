"""The switch of the metrics as Redis keeps it: one per shard, and all are switched together.

The broker's script `switch_metrics` writes it, together with the spans in which metrics were off. While a
shard is off, its queues and the processes that send to it emit no event.

    state       `off` or `on`; absent: never switched
    since_ms    when it was switched last, by the clock of Redis
    by, reason  who switched it last, and why
    spans       JSON: the spans that ended, oldest first
    restored    how far `restore_touched` has come
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OFF = b"off"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffSpan:
    """A span in which the metrics of a shard were off."""

    from_ms: int
    to_ms: int | None
    """None while they are off."""
    by: str
    reason: str
    ended_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSwitch:
    """The switch of one shard."""

    shard: int
    off: bool = False
    since_ms: int = 0
    """When it was switched last; 0 if it never was."""
    by: str = ""
    reason: str = ""
    ended: Sequence[OffSpan] = ()
    """The newest spans that ended, oldest first."""

    @property
    def spans(self) -> list[OffSpan]:
        """All known spans, oldest first; the one that has not ended is the last."""
        return [*self.ended, *([self.open_span] if self.open_span else [])]

    @property
    def open_span(self) -> OffSpan | None:
        if not self.off:
            return None
        return OffSpan(from_ms=self.since_ms, to_ms=None, by=self.by, reason=self.reason)


def switch_of(shard: int, stored: Mapping[bytes, bytes]) -> ShardSwitch:
    """The switch of a shard from the hash in Redis, which is empty if nobody ever switched."""
    return ShardSwitch(
        shard=shard,
        off=stored.get(b"state") == OFF,
        since_ms=int(stored.get(b"since_ms", 0)),
        by=stored.get(b"by", b"").decode(),
        reason=stored.get(b"reason", b"").decode(),
        ended=tuple(OffSpan(**span) for span in json.loads(stored.get(b"spans", b"[]"))),
    )
