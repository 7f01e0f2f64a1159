"""Records which messages were enqueued, delivered and settled, and finds lost or doubled ones.

Processes that may be killed write each step to a file before they take it. So a missing answer means that the
outcome is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from weir.model.message import Delivery


@dataclass(slots=True)
class Ledger:
    """The steps of every message, by id."""

    path: Path | None = None
    offered: set[str] = field(default_factory=set)
    """Passed to enqueue, whatever the outcome."""
    accepted: set[str] = field(default_factory=set)
    """Acknowledged to the producer."""
    deliveries: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Id -> (start, end) of each of its leases, by the broker's clock."""
    settling: set[str] = field(default_factory=set)
    settled: dict[str, int] = field(default_factory=dict)
    """Id -> the number of acks that were answered as done."""
    dead: set[str] = field(default_factory=set)

    def offer(self, ids: Iterable[str]) -> None:
        self._note("offer", list(ids))

    def accept(self, ids: Iterable[str]) -> None:
        self._note("accept", list(ids))

    def deliver(self, delivery: Delivery, *, lease_ms: int) -> None:
        end = delivery.lease_until_ms
        self._note("deliver", [delivery.message_id, end - lease_ms, end])

    def settle(self, ids: Iterable[str]) -> None:
        """Note that these are about to be acknowledged."""
        self._note("settle", list(ids))

    def settle_done(self, ids: Iterable[str]) -> None:
        self._note("done", list(ids))

    def bury(self, ids: Iterable[str]) -> None:
        self._note("bury", list(ids))

    def _note(self, what: str, values: list[Any]) -> None:
        self._apply(what, values)
        if self.path is not None:
            with self.path.open("a") as out:
                out.write(json.dumps([what, values]) + "\n")

    def _apply(self, what: str, values: list[Any]) -> None:
        if what == "deliver":
            message_id, start, end = values
            self.deliveries.setdefault(message_id, []).append((start, end))
            return
        if what == "done":
            for message_id in values:
                self.settled[message_id] = self.settled.get(message_id, 0) + 1
            return
        sets = {"offer": self.offered, "accept": self.accepted, "settle": self.settling, "bury": self.dead}
        sets[what].update(values)

    def read(self, path: Path) -> None:
        """Add the steps that another process wrote."""
        # A process that was killed may have left half a line at the end.
        for line in path.read_text().splitlines():
            try:
                what, values = json.loads(line)
            except ValueError:
                continue
            self._apply(what, values)

    def problems(self, *, remaining: Iterable[str] = ()) -> list[str]:
        """Every broken promise; `remaining` are the ids that the broker still holds."""
        left = set(remaining)
        found = [
            f"lost: {one} was accepted and is nowhere"
            for one in sorted(self.accepted - left - self.dead - self.settling)
        ]
        found += [f"phantom: {one} was never offered" for one in sorted(set(self.deliveries) - self.offered)]
        found += [f"settled twice: {one}" for one, count in self.settled.items() if count > 1]
        found += [f"in two places: {one}" for one in sorted((left & self.dead) | (left & set(self.settled)))]
        for one, leases in self.deliveries.items():
            ordered = sorted(leases)
            found += [
                f"leased twice at once: {one}" for (_, end), (start, _) in pairwise(ordered) if start < end
            ]
        return found
