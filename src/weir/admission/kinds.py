"""The kinds of operation that admission tells apart, and how urgent each is."""

from __future__ import annotations

from enum import StrEnum


class OperationType(StrEnum):
    SYSTEM_EVENT = "SYSTEM_EVENT"
    ACK_BATCH = "ACK_BATCH"
    ACK_SINGLE = "ACK_SINGLE"
    PUSH = "PUSH"
    POP = "POP"
    BACKGROUND_JOB = "BACKGROUND_JOB"
    ANALYTICS = "ANALYTICS"


PRIORITIES: dict[OperationType, int] = {
    OperationType.SYSTEM_EVENT: 1,
    OperationType.ACK_BATCH: 3,
    OperationType.ACK_SINGLE: 4,
    OperationType.PUSH: 5,
    OperationType.POP: 6,
    OperationType.BACKGROUND_JOB: 8,
    OperationType.ANALYTICS: 10,
}
"""1 is critical, 10 can wait."""
