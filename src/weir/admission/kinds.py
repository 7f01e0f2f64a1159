"""The kinds of operation that admission tells apart, and how urgent each is."""

from __future__ import annotations

from enum import StrEnum


class OperationType(StrEnum):
    ACK_BATCH = "ACK_BATCH"
    ACK_SINGLE = "ACK_SINGLE"
    PUSH = "PUSH"
    POP = "POP"


PRIORITIES: dict[OperationType, int] = {
    OperationType.ACK_BATCH: 3,
    OperationType.ACK_SINGLE: 4,
    OperationType.PUSH: 5,
}
"""Of the kinds that can be queued: 1 is critical, 10 can wait."""
