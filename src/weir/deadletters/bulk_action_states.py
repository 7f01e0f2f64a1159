"""The states of a bulk action, in a module that commands can import without a driver."""

from __future__ import annotations

from enum import StrEnum


class BulkActionState(StrEnum):
    """pending -> running -> completed, failed, cancelled or stopped_by_canary; paused and back in between."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    STOPPED_BY_CANARY = "stopped_by_canary"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def live(self) -> bool:
        """Whether a runner works on it."""
        return self in (BulkActionState.PENDING, BulkActionState.RUNNING)

    @property
    def over(self) -> bool:
        """Whether nothing happens any more, unless somebody resumes it."""
        return not self.live and self is not BulkActionState.PAUSED
