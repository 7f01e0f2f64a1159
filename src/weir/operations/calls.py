"""Lanes for calls: each carries one call at a time, so that the broker need remember only its last."""

from __future__ import annotations

from weir.model.ids import new_id


class CallLanes:
    """Hands out lane names. A lane whose call had an unknown outcome is never given back."""

    def __init__(self, process: str | None = None) -> None:
        self._process = process or new_id()
        self._free: list[str] = []
        self._made = 0

    def take(self) -> str:
        if self._free:
            return self._free.pop()
        self._made += 1
        return f"{self._process}/{self._made}"

    def give_back(self, lane: str) -> None:
        self._free.append(lane)
