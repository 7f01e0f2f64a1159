"""Until when leases of the memory broker may lapse: `lapse_horizon` of the scripts."""

from __future__ import annotations

from weir.broker.layout import KEPT_MS, LATE_MS


class LapseHorizon:
    """The horizon of one shard. Without a keeper leases lapse when they end."""

    def __init__(self) -> None:
        self._until_ms: int | None = None
        self._missed_ms: int | None = None

    def move(self, until_ms: int, *, now: int) -> None:
        if self._until_ms is None or until_ms > self._until_ms or self._until_ms > now:
            self._until_ms, self._missed_ms = until_ms, None

    def at(self, now: int) -> int:
        """Leases that ended by this time may lapse."""
        if self._until_ms is None or self._until_ms >= now:
            return now
        if now - self._until_ms <= LATE_MS:
            return self._until_ms
        if self._missed_ms is None:
            self._missed_ms = now
        return self._until_ms if now - self._missed_ms < KEPT_MS else now
