"""A message in the log of its queue: its life, and what it carried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weir.model.lives import Life


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedMessage:
    """A message that ended in a queue that keeps a log."""

    number: int
    """Its number among the lives of its queue, from 1 on, in the order of their ends. While a queue keeps a log
    no number is missing, unless a gap is recorded."""
    life: Life
    kept_ms: int
    """For how long the log keeps it after its end."""
    left_out: bool
    """Its payload and headers are not in the log, because its call ended too many bytes at once."""
    headers: Mapping[str, str]
    payload: bytes
    idempotency_key: str | None
