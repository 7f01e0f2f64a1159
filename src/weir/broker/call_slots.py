"""Names the enqueue calls of one process: those of direct pushes, and the lists of a client over HTTP."""

from __future__ import annotations

import itertools
import os

from weir.broker.broker import NamedCall
from weir.model.ids import new_id


class CallSlots:
    """Names calls. Each slot carries one call at a time, so the broker need remember only its last.

    The calls of a slot are numbered: bytes of an earlier one, sent twice, may arrive behind a later one. A
    slot whose call had an unknown outcome is never given back: the call may still take effect.

    Threads may share it. A process that was forked names its calls anew, because its parent goes on.
    """

    def __init__(self, process: str | None = None) -> None:
        self._process = process or new_id()
        self._pid = os.getpid()
        # Threads take and give back by `pop`, `append` and `next` alone, which are atomic.
        self._free: list[NamedCall] = []
        """The last call of each slot that is free."""
        self._numbers = itertools.count(1)

    def take(self) -> NamedCall:
        """A fresh call in a slot that no other call uses meanwhile."""
        if self._pid != os.getpid():
            self._pid, self._process, self._free = os.getpid(), new_id(), []
        try:
            last = self._free.pop()
        except IndexError:
            return NamedCall(slot=f"{self._process}/{next(self._numbers)}", id="1")
        return NamedCall(slot=last.slot, id=str(int(last.id) + 1))

    def give_back(self, call: NamedCall) -> None:
        """The outcome of the call is known."""
        self._free.append(call)

    def take_free(self) -> list[str]:
        """The slots that no call uses. Their names are not used again."""
        if self._pid != os.getpid():
            return []
        free, self._free = self._free, []
        return [call.slot for call in free]
