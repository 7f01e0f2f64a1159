"""The records and specs of a worker, kept in memory so that a test can look at them."""

from __future__ import annotations

from dataclasses import dataclass

from weir.model.names import EnvironmentRef
from weir.outbound.delivery_log import DeliveryRecord
from weir.spec.snapshot import SpecSnapshot
from weir.workers.journal import AttemptRecord


class MemoryDeliveryLog:
    """Deliveries over HTTP and the endpoints that are disabled."""

    def __init__(self) -> None:
        self.records: list[DeliveryRecord] = []
        self.disabled: set[tuple[EnvironmentRef, str]] = set()

    def record(self, record: DeliveryRecord) -> None:
        self.records.append(record)

    async def disable(self, scope: EnvironmentRef, url: str, *, now_ms: int, reason: str) -> None:
        self.disabled.add((scope, url))

    def is_disabled(self, scope: EnvironmentRef, url: str) -> bool:
        return (scope, url) in self.disabled


class MemoryJournal:
    """Attempts at messages."""

    def __init__(self) -> None:
        self.attempts: list[AttemptRecord] = []

    def record(self, attempt: AttemptRecord) -> None:
        self.attempts.append(attempt)


@dataclass(slots=True)
class FixedSpecs:
    """Applied specs that change only when the test says so."""

    snapshot: SpecSnapshot
