"""Lanes for calls: each carries one call at a time, so that the broker need remember only its last."""

from __future__ import annotations

from weir.broker.broker import Call
from weir.model.ids import new_id


class CallLanes:
    """Names calls. A lane whose call had an unknown outcome is never given back."""

    def __init__(self, process: str | None = None) -> None:
        self._process = process or new_id()
        self._free: list[str] = []
        self._made = 0

    def take(self) -> Call:
        """A fresh call in a lane that no other call uses meanwhile."""
        if self._free:
            return Call(lane=self._free.pop(), id=new_id())
        self._made += 1
        return Call(lane=f"{self._process}/{self._made}", id=new_id())

    def give_back(self, call: Call) -> None:
        """The outcome of the call is known."""
        self._free.append(call.lane)
